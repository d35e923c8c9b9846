use std::borrow::Cow;

use lock_core::{Error, Name, Result};

/// What goes in front of every key and channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Prefix(String);

/// Where one name lives on the server: all in one hash slot, no two names in the same place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Keys {
    /// The lock: `owner:token:label`, with the lease as its expiry.
    pub(crate) lock: String,
    /// The last fencing token. It never expires.
    pub(crate) fence: String,
    /// Who waits, in order: `owner:deadline:bell:label`. It expires with the last of them.
    pub(crate) queue: String,
}

impl Keys {
    /// What every script that decides who is next is given.
    pub(crate) fn all(&self) -> [&str; 3] {
        [&self.lock, &self.fence, &self.queue]
    }
}

impl Prefix {
    pub(crate) fn new(prefix: impl Into<String>) -> Result<Self> {
        let prefix = prefix.into();
        if prefix.len() > 255 || prefix.contains(['{', '}']) || prefix.contains(char::is_control) {
            return Err(Error::invalid_input(format!(
                "the key prefix {prefix:?} is longer than 255 bytes, or has braces or control characters"
            )));
        }
        Ok(Self(prefix))
    }

    /// The braces make a cluster hash the name alone, which keeps the three in one slot.
    pub(crate) fn keys(&self, name: &Name) -> Keys {
        let lock = [&self.0, "{", &escaped(name.as_str()), "}"].concat();
        Keys { fence: [&lock, ":fence"].concat(), queue: [&lock, ":queue"].concat(), lock }
    }

    /// The channel of one connection. Scripts make the same of a key and a bell.
    pub(crate) fn channel(&self, bell: &str) -> String {
        [&self.0, "wake:", bell].concat()
    }
}

impl Default for Prefix {
    fn default() -> Self {
        Self("polylock:".into())
    }
}

/// Escapes braces, which would end the hashed part early, and the escape itself; nothing else, so that
/// people can read their names on the server.
fn escaped(name: &str) -> Cow<'_, str> {
    if !name.contains(['%', '{', '}']) {
        return name.into();
    }
    let mut escaped = String::with_capacity(name.len());
    for c in name.chars() {
        match c {
            '%' => escaped.push_str("%25"),
            '{' => escaped.push_str("%7B"),
            '}' => escaped.push_str("%7D"),
            _ => escaped.push(c),
        }
    }
    escaped.into()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// CRC-16/XMODEM over the part between the first `{` and the next `}`, as the cluster's
    /// specification has it.
    fn slot(key: &str) -> u16 {
        let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
        let hashed = tag.filter(|tag| !tag.is_empty()).unwrap_or(key);
        let crc = hashed.bytes().fold(0_u16, |crc, byte| {
            (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| {
                if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
            })
        });
        crc % 16384
    }

    #[test]
    fn the_test_hashes_as_redis_does() {
        assert_eq!(slot("123456789"), 0x31c3);
        assert_eq!(slot("{user1000}.following"), slot("user1000"));
    }

    #[test]
    fn all_keys_of_a_name_share_a_slot_and_no_two_names_share_a_key() {
        let names = ["a", "{a}b", "}{", "{}", "a{b", "a}b", "%7B", "{", "a%", "a%25", "à/ü", "x:fence"];
        let mut seen = HashSet::new();
        for name in names {
            let Keys { lock, fence, queue } = Prefix::default().keys(&Name::new(name).unwrap());
            assert_eq!(slot(&lock), slot(&fence), "{name}");
            assert_eq!(slot(&lock), slot(&queue), "{name}");
            for key in [lock, fence, queue] {
                assert!(seen.insert(key.clone()), "{name} and another share {key}");
            }
        }
    }

    #[test]
    fn a_plain_name_stays_readable() {
        let keys = Prefix::default().keys(&Name::new("orders/42").unwrap());
        assert_eq!(keys.lock, "polylock:{orders/42}");
        assert_eq!(keys.fence, "polylock:{orders/42}:fence");
        assert_eq!(keys.queue, "polylock:{orders/42}:queue");
        assert_eq!(Prefix::default().channel("0f"), "polylock:wake:0f");
    }

    #[test]
    fn a_prefix_that_would_move_the_hashed_part_is_refused() {
        for bad in ["a{", "}", "\n", &"x".repeat(256)] {
            assert!(Prefix::new(bad).is_err(), "{bad}");
        }
        assert!(Prefix::new("").is_ok());
    }
}
