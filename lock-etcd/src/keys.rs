use lock_core::{Claim, Error, Name, Result};

/// What goes in front of every key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Prefix(String);

/// Where a claim lives on the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Keys {
    /// All claims on the name, ours and those of `etcdctl lock`, are the keys that start with this.
    pub(crate) queue: String,
    /// This claim's own key.
    pub(crate) own: String,
}

impl Prefix {
    pub(crate) fn new(prefix: impl Into<String>) -> Result<Self> {
        let prefix = prefix.into();
        if prefix.is_empty() || prefix.len() > 255 || prefix.contains(char::is_control) {
            return Err(Error::invalid_input(format!(
                "the key prefix {prefix:?} is empty, longer than 255 bytes, or has control characters"
            )));
        }
        Ok(Self(prefix))
    }

    /// The name that `etcdctl lock` would be given for the same lock.
    pub(crate) fn lock(&self, name: &Name) -> String {
        [&self.0, "/", &escaped(name.as_str())].concat()
    }

    pub(crate) fn keys(&self, claim: &Claim) -> Keys {
        let queue = self.lock(&claim.name) + "/";
        Keys { own: [&queue, &*claim.owner.to_hex()].concat(), queue }
    }

    /// A key that is no claim's, but may be read by whoever may read claims.
    pub(crate) fn probe(&self) -> String {
        [&self.0, "/"].concat()
    }
}

impl Default for Prefix {
    fn default() -> Self {
        Self("polylock".into())
    }
}

/// Escapes the slash, which ends a name, and the escape itself; nothing else, so that people can read
/// their names on the server.
fn escaped(name: &str) -> String {
    name.replace('%', "%25").replace('/', "%2F")
}

#[cfg(test)]
mod tests {
    use lock_core::Owner;

    use super::*;

    #[test]
    fn no_names_claims_are_among_anothers() {
        let names = ["a", "a/", "/a", "a/b", "a%2Fb", "a%252Fb", "a%", "/", "//", "%", "x", "x/0"];
        let queues: Vec<_> = names
            .iter()
            .map(|name| {
                let claim = Claim::new(
                    Name::new(name).unwrap(),
                    Owner::from_bytes([7; 16]),
                    std::time::Duration::from_secs(1),
                );
                Prefix::default().keys(&claim)
            })
            .collect();
        for (i, one) in queues.iter().enumerate() {
            assert!(one.own.starts_with(&one.queue));
            for (j, other) in queues.iter().enumerate() {
                assert!(i == j || !other.own.starts_with(&one.queue), "{} and {}", names[i], names[j]);
            }
        }
    }

    #[test]
    fn a_plain_name_stays_readable() {
        let lock = Prefix::new("app/locks").unwrap().lock(&Name::new("orders/42").unwrap());
        assert_eq!(lock, "app/locks/orders%2F42");
    }

    #[test]
    fn a_prefix_that_cannot_be_told_from_none_is_refused() {
        for bad in ["", "\n", &"x".repeat(256)] {
            assert!(Prefix::new(bad).is_err(), "{bad:?}");
        }
    }
}
