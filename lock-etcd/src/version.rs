//! Which etcd can be trusted with leases.

/// Of each release line, the first version without a known bug that can end a lease too soon.
const SOUND: [(u64, u64, u64); 3] = [(3, 4, 42), (3, 5, 28), (3, 6, 9)];

/// What a server of this version should be upgraded to, if it can end a lease too soon. A version that cannot be
/// read is no reason to warn.
pub(crate) fn upgrade_of(version: &str) -> Option<String> {
    let (numbers, is_release) = match version.split_once(['-', '+']) {
        Some((numbers, _)) => (numbers, false),
        None => (version, true),
    };
    let mut numbers = numbers.split('.').map(|number| number.parse::<u64>().ok());
    let (major, minor, patch) = (numbers.next()??, numbers.next()??, numbers.next()??);
    // Lines that are older than these get no more fixes.
    let (a, b, first) = SOUND.into_iter().find(|&(a, b, _)| (major, minor) <= (a, b))?;
    let is_sound = (major, minor) == (a, b) && (patch > first || patch == first && is_release);
    (!is_sound).then(|| format!("{a}.{b}.{first}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_with_a_known_bug_are_told_from_later_ones() {
        for (version, upgrade) in [
            ("2.3.8", Some("3.4.42")),
            ("3.3.27", Some("3.4.42")),
            ("3.4.23", Some("3.4.42")),
            ("3.4.41", Some("3.4.42")),
            ("3.4.42", None),
            ("3.5.0", Some("3.5.28")),
            ("3.5.9", Some("3.5.28")),
            ("3.5.28-rc.0", Some("3.5.28")),
            ("3.5.28", None),
            ("3.5.100", None),
            ("3.6.0-alpha.0", Some("3.6.9")),
            ("3.6.8+git", Some("3.6.9")),
            ("3.6.9", None),
            ("3.6.10", None),
            ("3.7.0-alpha.0", None),
            ("3.10.0", None),
            ("4.0.0", None),
        ] {
            assert_eq!(upgrade_of(version).as_deref(), upgrade, "{version}");
        }
    }

    #[test]
    fn what_is_no_version_is_no_reason_to_warn() {
        for text in ["", "3", "3.5", "3.5.", "3.five.1", "v3.5.1", "not decided"] {
            assert_eq!(upgrade_of(text), None, "{text}");
        }
    }
}
