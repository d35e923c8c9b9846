use lock_core::{Claim, Error, Name, Owner, Result};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// What a node's name may not hold as it is: `/`, control characters, all that is not ASCII, and the escape.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~')
    .remove(b':')
    .remove(b'+')
    .remove(b'@')
    .remove(b'=')
    .remove(b',')
    .remove(b' ');

/// The node below which all locks live: empty for the server's own root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Root(String);

/// Where the node of one claim is, but for the number that the server adds.
#[derive(Debug)]
pub(crate) struct Place {
    /// The parent that all claims of the name share.
    pub(crate) directory: String,
    /// How the node's name begins.
    pub(crate) prefix: String,
    /// How the node's path begins; no two claims share it.
    pub(crate) path: String,
}

impl Root {
    /// Reads `/a/b`, `/` or nothing.
    pub(crate) fn new(path: &str) -> Result<Self> {
        let invalid = || {
            Error::invalid_input(
                "a zookeeper path is /node/node, without empty nodes, `.`, `..`, control characters or \
                 /zookeeper",
            )
        };
        let path = path.trim_end_matches('/');
        if path.is_empty() {
            return Ok(Self::default());
        }
        let nodes = path.strip_prefix('/').ok_or_else(invalid)?;
        let is_legal = |node: &str| {
            !matches!(node, "" | "." | "..") && !node.chars().any(|c| c.is_control() || is_special(c))
        };
        if !nodes.split('/').all(is_legal) || nodes.split('/').next() == Some("zookeeper") {
            return Err(invalid());
        }
        Ok(Self(path.to_owned()))
    }

    /// The path, unless it is the server's own root, which is always there.
    pub(crate) fn path(&self) -> Option<&str> {
        Some(self.0.as_str()).filter(|path| !path.is_empty())
    }

    /// The node whose children are the claims of a name.
    pub(crate) fn directory(&self, name: &Name) -> String {
        [&self.0, "/", &escaped(name.as_str())].concat()
    }

    /// Where the node of a claim is.
    pub(crate) fn place(&self, claim: &Claim) -> Place {
        let directory = self.directory(&claim.name);
        let prefix = prefix(claim.owner);
        let path = [&directory, "/", &prefix].concat();
        Place { directory, prefix, path }
    }

    /// The node by which a session proves that it lives. No name is escaped to this.
    pub(crate) fn pulse(&self, session: i64) -> String {
        format!("{}/%session-{session:016x}", self.0)
    }
}

impl Place {
    /// The path of a child of the directory.
    pub(crate) fn child(&self, name: &str) -> String {
        [&self.directory, "/", name].concat()
    }
}

/// Curator's form of a protected node, so that its locks and ours know each other.
fn prefix(owner: Owner) -> String {
    ["_c_", &owner.to_hex(), "-lock-"].concat()
}

/// What the server refuses in a path, beside control characters.
fn is_special(c: char) -> bool {
    matches!(c, '\u{e000}'..='\u{f8ff}' | '\u{fff0}'..='\u{ffff}')
}

/// One node's name for every lock's name, the same for no two.
fn escaped(name: &str) -> String {
    match name {
        // Legal in a node's name, but not as one.
        "." => "%2E".into(),
        ".." => "%2E%2E".into(),
        // The server's own.
        "zookeeper" => "%7Aookeeper".into(),
        _ => utf8_percent_encode(name, ESCAPED).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, time::Duration};

    use super::*;

    #[test]
    fn a_plain_name_stays_readable() {
        let name = Name::new("orders:42").unwrap();
        assert_eq!(Root::new("/locks/").unwrap().directory(&name), "/locks/orders:42");
        assert_eq!(Root::default().directory(&name), "/orders:42");
        let owner = Owner::from_hex("00010203343536373839616263646566").unwrap();
        let place = Root::new("/l").unwrap().place(&Claim::new(name, owner, Duration::ZERO));
        assert_eq!(place.path, "/l/orders:42/_c_00010203343536373839616263646566-lock-");
        assert_eq!(place.child("x"), "/l/orders:42/x");
    }

    #[test]
    fn no_two_names_share_a_node_and_every_node_is_legal() {
        let names = [
            "a",
            "a/",
            "/a",
            "a/b",
            "a%2Fb",
            "%2F",
            "/",
            ".",
            "..",
            "%2E",
            "...",
            "zookeeper",
            "%7Aookeeper",
            "zookeeper/a",
            "\u{d7ff}",
            "\u{fff0}",
            "\u{e000}",
            "à",
            "a\u{300}",
            "%session-0",
            " ",
            "x-lock-0000000001",
        ];
        let mut seen = HashSet::new();
        for name in names {
            let node = escaped(Name::new(name).unwrap().as_str());
            assert!(node.is_ascii() && !node.contains('/'), "{node}");
            assert!(!matches!(node.as_str(), "." | ".." | "zookeeper"), "{node}");
            assert!(!Root::default().pulse(0).contains(&node) || node.len() < 2, "{node}");
            assert!(seen.insert(node), "{name:?} shares its node");
        }
    }

    #[test]
    fn a_root_that_the_server_would_refuse_is_refused() {
        for bad in ["a", "/a//b", "/./a", "/..", "/zookeeper", "/zookeeper/a", "/a\0", "/\u{e000}"] {
            assert!(Root::new(bad).is_err(), "{bad:?}");
        }
        assert_eq!(Root::new("/a/zookeeper").unwrap().path(), Some("/a/zookeeper"));
        assert_eq!(Root::new("/").unwrap().path(), None);
        assert_eq!(Root::new("").unwrap().path(), None);
    }
}
