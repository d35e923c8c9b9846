//! The cases, one file for each group. A file lists its own in `CASES`; the name of a case in the
//! program's output is `group::case`.

use crate::case::Case;

macro_rules! groups {
    ($($group:ident),* $(,)?) => {
        $(mod $group;)*
        const GROUPS: &[(&str, &[Case])] = &[$((stringify!($group), $group::CASES)),*];
    };
}

groups! {
    laws,
    exclusion,
    fencing,
    loss,
    cancellation,
    waiting,
    release,
    renewal,
    names,
    ttl,
    reconnect,
    redis,
    runtime,
    file,
    guarantees,
}

/// Every case with its group's name.
pub(crate) fn all() -> impl Iterator<Item = (&'static str, Case)> {
    GROUPS.iter().flat_map(|(group, cases)| cases.iter().map(|case| (*group, *case)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::all;

    #[test]
    fn no_two_cases_have_the_same_name() {
        let mut names = BTreeSet::new();
        for (group, case) in all() {
            assert!(names.insert(case.name), "{group}::{} is there twice", case.name);
        }
    }
}
