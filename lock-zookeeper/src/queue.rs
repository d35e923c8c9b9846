//! The order of a lock's children.

/// What stands before the sequence number of a node that contends: ours and Curator's, and kazoo's.
const MARKS: [&str; 2] = ["lock-", "__lock__"];

/// Where a contender stands.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Position<'a> {
    /// It holds.
    First,
    /// It waits.
    Behind {
        /// The contender right before it.
        predecessor: &'a str,
        /// The one before that; `None` if the predecessor holds.
        second: Option<&'a str>,
    },
}

/// Where the node of this name stands among the children; `None` if it is not there.
///
/// Children that are no contenders do not count.
pub(crate) fn position<'a>(children: &'a [String], own: &str) -> Option<Position<'a>> {
    if !children.iter().any(|child| child == own) {
        return None;
    }
    let own = sequence(own)?;
    let ahead = children.iter().filter_map(|child| {
        // Sequence numbers are 32 bits and go on at the smallest when they are used up.
        let distance = own.wrapping_sub(sequence(child)?);
        (distance > 0).then_some((distance, child.as_str()))
    });
    let (mut nearest, mut second) = (None, None);
    for contender in ahead {
        if nearest.is_none_or(|nearest| contender < nearest) {
            (nearest, second) = (Some(contender), nearest);
        } else if second.is_none_or(|second| contender < second) {
            second = Some(contender);
        }
    }
    Some(match nearest {
        None => Position::First,
        Some((_, predecessor)) => Position::Behind { predecessor, second: second.map(|(_, child)| child) },
    })
}

/// The sequence number of a contender's node; `None` for other children.
fn sequence(child: &str) -> Option<i32> {
    MARKS.iter().find_map(|mark| {
        let number = &child[child.rfind(mark)? + mark.len()..];
        let digits = number.strip_prefix('-').unwrap_or(number);
        let is_number = number.len() >= 10 && digits.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| number.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn behind<'a>(predecessor: &'a str, second: Option<&'a str>) -> Option<Position<'a>> {
        Some(Position::Behind { predecessor, second })
    }

    #[test]
    fn the_smallest_number_holds_whoever_made_it() {
        let children = [
            "_c_b-lock-0000000012",
            "_c_0e7a-lock-0000000009",
            "a7f__lock__0000000010",
            "_c_c-lock-0000000013",
        ]
        .map(str::to_owned);
        assert_eq!(position(&children, "_c_0e7a-lock-0000000009"), Some(Position::First));
        assert_eq!(position(&children, "a7f__lock__0000000010"), behind("_c_0e7a-lock-0000000009", None));
        let (first, second) = ("_c_0e7a-lock-0000000009", "a7f__lock__0000000010");
        assert_eq!(position(&children, "_c_b-lock-0000000012"), behind(second, Some(first)));
        assert_eq!(position(&children, "_c_c-lock-0000000013"), behind("_c_b-lock-0000000012", Some(second)));
        assert_eq!(position(&children, "_c_x-lock-0000000014"), None);
    }

    #[test]
    fn numbers_go_on_behind_the_largest() {
        let names = ["2147483646", "2147483647", "-2147483648", "-2147483647", "-000000001"];
        let children: Vec<_> = names.iter().map(|number| format!("_c_a-lock-{number}")).collect();
        let numbers: Vec<_> = children.iter().map(|child| sequence(child).unwrap()).collect();
        assert_eq!(numbers, [i32::MAX - 1, i32::MAX, i32::MIN, i32::MIN + 1, -1]);
        let children = &children[..4];
        assert_eq!(position(children, &children[0]), Some(Position::First));
        for (index, own) in children.iter().enumerate().skip(1) {
            let second = index.checked_sub(2).map(|index| children[index].as_str());
            assert_eq!(position(children, own), behind(&children[index - 1], second), "{own}");
        }
    }

    #[test]
    fn other_children_do_not_contend() {
        for other in [
            "config",
            "0000000001",
            "lock-",
            "lock-1",
            "lock-00000000x1",
            "lock-+000000001",
            "lock-99999999999",
            "a__rlock__0000000001",
            "_c_a-__READ__0000000001",
            "_c_a-lock-0000000001.bak",
            "ü-lock-",
        ] {
            assert_eq!(sequence(other), None, "{other}");
        }
        let children = ["config", "_c_a-lock-0000000001", "_c_a-lock-0000000001.bak"].map(str::to_owned);
        assert_eq!(position(&children, "_c_a-lock-0000000001"), Some(Position::First));
    }
}
