use std::{fmt, sync::Arc};

use crate::{Error, Result};

/// What is locked: 1 to 255 bytes of UTF-8 without control characters.
///
/// Names are compared byte by byte: no case folding, no trimming, no Unicode normalisation, on any
/// backend. A backend never sees a name it could reject: it escapes what its server cannot take.
///
/// ```
/// # use lock_core::Name;
/// assert!(Name::new("orders/42").is_ok());
/// assert!(Name::new("").is_err());
/// assert!(Name::new("line\nbreak").is_err());
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(Arc<str>);

impl Name {
    /// The longest name, in bytes.
    pub const MAX_LEN: usize = 255;

    /// Checks a name.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) for a name that is empty, longer than
    /// 255 bytes, or has a control character (U+0000 to U+001F, U+007F to U+009F).
    pub fn new(name: impl AsRef<str>) -> Result<Self> {
        let name = name.as_ref();
        if name.is_empty() {
            return Err(Error::invalid_input("a lock's name is empty"));
        }
        if name.len() > Self::MAX_LEN {
            let len = name.len();
            return Err(Error::invalid_input(format!("a lock's name has {len} bytes; 255 is the most")));
        }
        if let Some(c) = name.chars().find(|c| c.is_control()) {
            let code = u32::from(c);
            return Err(Error::invalid_input(format!(
                "the lock name {name:?} has the control character U+{code:04X}"
            )));
        }
        Ok(Self(name.into()))
    }

    /// The name as it was given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_counts_and_nothing_is_folded() {
        let distinct = ["a", "A", "à", "a ", " a", "a/", "/a", "a\u{301}", "á"];
        for (i, left) in distinct.iter().enumerate() {
            for right in &distinct[i + 1..] {
                assert_ne!(Name::new(left).unwrap(), Name::new(right).unwrap());
            }
        }
    }

    #[test]
    fn the_limits_are_exact() {
        assert!(Name::new("x".repeat(255)).is_ok());
        assert!(Name::new("x".repeat(256)).is_err());
        for bad in ["", "\0", "\u{1f}", "\u{7f}", "\u{85}", "a\tb"] {
            assert!(Name::new(bad).is_err(), "{bad:?}");
        }
        for good in ["/", "//", ".", "..", "zookeeper", "file:///a", "\u{d7ff}", "\u{fff0}", "{a}b", "%2F"] {
            assert!(Name::new(good).is_ok(), "{good:?}");
        }
    }
}
