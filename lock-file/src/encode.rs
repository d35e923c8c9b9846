//! Names as file names: injective, at most 255 bytes, never hidden, never a path.

use lock_core::Name;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use sha2::{Digest, Sha256};

/// What every state file ends in.
const SUFFIX: &str = ".lock";
/// The longest encoding that is used whole.
const WHOLE: usize = 200;
/// How much of a longer one is kept in front of its hash.
const PREFIX: usize = 160;

const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');

/// The file name that stands for a lock's name.
///
/// A long name becomes a readable prefix, `~` and the SHA-256 of the whole; `~` itself is always
/// escaped, so that no short name can look like that.
pub(crate) fn file_name(name: &Name) -> String {
    let name = name.as_str();
    let mut encoded = utf8_percent_encode(name, ESCAPED).to_string();
    if encoded.starts_with('.') {
        encoded.replace_range(..1, "%2E");
    }
    if encoded.len() > WHOLE {
        encoded.truncate(escape_boundary(&encoded, PREFIX));
        encoded.push('~');
        encoded.push_str(&hex(&Sha256::digest(name)));
    }
    encoded + SUFFIX
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The largest length up to `limit` that cuts no `%XX` in two.
fn escape_boundary(encoded: &str, limit: usize) -> usize {
    let tail = &encoded.as_bytes()[limit - 2..limit];
    match tail.iter().position(|byte| *byte == b'%') {
        Some(index) => limit - 2 + index,
        None => limit,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn encoded(name: &str) -> String {
        file_name(&Name::new(name).unwrap())
    }

    #[test]
    fn plain_names_stay_readable() {
        assert_eq!(encoded("nightly-job_2.0"), "nightly-job_2.0.lock");
        assert_eq!(encoded("orders/42"), "orders%2F42.lock");
        assert_eq!(encoded(".alive"), "%2Ealive.lock");
        assert_eq!(encoded(".."), "%2E..lock");
        let long = encoded(&format!("a/{}", "ü".repeat(100)));
        assert!(long.starts_with("a%2F%C3%BC%C3%BC") && long.contains("%BC~"), "{long}");
    }

    #[test]
    fn no_two_names_share_a_file_and_every_file_name_is_legal() {
        let pieces = [
            "a", "A", ".", "..", "/", "//", "~", "%", "%2F", "%2f", "+", " ", "é", "e\u{301}", ".lock", "\\",
            ":",
        ];
        let mut names: Vec<String> = Vec::new();
        for left in pieces {
            for right in pieces {
                for middle in ["", "b", &"x".repeat(150), &"ß".repeat(100), &"/".repeat(66), &"/".repeat(67)]
                {
                    names.push(format!("{left}{middle}{right}"));
                }
            }
        }
        // The exact limits, names that differ in their last byte only, and names made from encodings.
        for length in [159, 160, 161, 199, 200, 201, 254, 255] {
            names.push("y".repeat(length));
            names.push("y".repeat(length - 1) + "z");
        }
        let encodings: Vec<String> =
            names.iter().filter(|name| Name::new(name).is_ok()).map(|name| encoded(name)).collect();
        names.extend(encodings.iter().cloned());
        names.extend(encodings.iter().map(|encoding| encoding.trim_end_matches(".lock").to_owned()));

        let mut seen = HashMap::new();
        for name in names.iter().filter(|name| Name::new(name).is_ok()) {
            let file = encoded(name);
            assert!(file.len() <= 255 && !file.starts_with('.') && !file.contains('/'), "{file}");
            assert!(file.bytes().all(|byte| byte.is_ascii_graphic()), "{file}");
            if let Some(other) = seen.insert(file.clone(), name) {
                assert_eq!(other, name, "{file}");
            }
        }
        assert!(seen.len() > 1000);
    }
}
