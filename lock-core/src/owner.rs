use std::fmt;

use crate::{Error, ErrorKind, Result};

/// Who claims a name: 128 random bits from the operating system, new for every acquisition.
///
/// An owner is a bearer secret among the clients of one server: whoever knows it can release the
/// claim. `Debug` therefore shows the first 32 bits only, enough to tell two claims apart in a log.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Owner([u8; 16]);

impl Owner {
    /// Draws a new owner.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Internal`] if the operating system gives no randomness.
    pub fn random() -> Result<Self> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(|e| {
            Error::new(ErrorKind::Internal, "the operating system gave no random bytes").with_source(e)
        })?;
        Ok(Self(bytes))
    }

    /// An owner from its bytes, for backends that read one back from their server.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The owner's bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// 32 lower-case hexadecimal digits, the form that servers store.
    #[must_use]
    pub fn to_hex(&self) -> String {
        format!("{:032x}", u128::from_be_bytes(self.0))
    }

    /// Reads what [`to_hex`](Self::to_hex) wrote; `None` for anything else.
    #[must_use]
    pub fn from_hex(hex: &str) -> Option<Self> {
        let digits = hex.len() == 32 && hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        let value = digits.then(|| u128::from_str_radix(hex, 16).ok())??;
        Some(Self(value.to_be_bytes()))
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, ..] = self.0;
        write!(f, "{a:02x}{b:02x}{c:02x}{d:02x}…")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_goes_there_and_back_and_debug_keeps_the_secret() {
        let owner = Owner::from_bytes(*b"\x00\x01\x02\x03456789abcdef");
        assert_eq!(owner.to_hex(), "00010203343536373839616263646566");
        assert_eq!(Owner::from_hex(&owner.to_hex()), Some(owner));
        assert_eq!(format!("{owner:?}"), "00010203…");
        for bad in ["", "0", "+0010203343536373839616263646566", "0001020334353637383961626364656G"] {
            assert_eq!(Owner::from_hex(bad), None, "{bad}");
        }
    }

    #[test]
    fn no_two_draws_are_alike() {
        assert_ne!(Owner::random().unwrap(), Owner::random().unwrap());
    }
}
