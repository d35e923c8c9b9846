//! What Linux tells of other processes; elsewhere nothing is known.
//!
//! The leader of a group or session may live outside of our process namespace (a container that was entered
//! from without). Its number reads 0 here, which is no [`Pid`]: rustix's calls panic on it, so nix asks.

use std::fs;

use nix::unistd;
use rustix::process::Pid;

/// `None`: its leader is in another namespace.
pub(super) fn own_group() -> Option<Pid> {
    Pid::from_raw(unistd::getpgrp().as_raw())
}

/// `None`: its leader is in another namespace.
pub(super) fn own_session() -> Option<Pid> {
    Pid::from_raw(unistd::getsid(None).ok()?.as_raw())
}

/// A line of `/proc/PID/stat`, as far as it is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stat {
    pub(super) alive: bool,
    pub(super) parent: Option<Pid>,
    pub(super) group: Option<Pid>,
    pub(super) session: Option<Pid>,
}

impl Stat {
    pub(super) fn of(pid: Pid) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?)
    }

    /// `1 (name) S parent group session …`; the name may hold anything.
    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.rsplit_once(')')?.1.split_whitespace();
        let alive = !matches!(fields.next()?, "Z" | "X");
        // All three are -1 while the process is just being reaped.
        let mut pid = || fields.next()?.parse().ok().map(|raw: i32| Pid::from_raw(raw.max(0)));
        Some(Self { alive, parent: pid()?, group: pid()?, session: pid()? })
    }
}

/// Whether a process other than its leader lives in the group. `None`: not known.
pub(super) fn has_followers(group: Pid) -> Option<bool> {
    let pids = fs::read_dir("/proc")
        .ok()?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok().and_then(Pid::from_raw));
    let mut known = false;
    for pid in pids.filter(|pid| *pid != group) {
        let Some(stat) = Stat::of(pid) else { continue };
        known = true;
        if stat.alive && stat.group == Some(group) {
            return Some(true);
        }
    }
    known.then_some(false)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use rustix::process::{getpid, getppid};

    use super::*;

    #[test]
    fn the_system_tells_of_this_process_what_it_knows_itself() {
        let expected = Stat { alive: true, parent: getppid(), group: own_group(), session: own_session() };
        assert_eq!(Stat::of(getpid()), Some(expected));
        assert!(Stat::parse("7 (a) Z 1 (b)) Z 1 2 3 0").is_some_and(|stat| !stat.alive));
    }

    #[test]
    fn a_leader_in_another_namespace_is_nobody_here() {
        let outside = Stat { alive: true, parent: None, group: None, session: None };
        assert_eq!(Stat::parse("7 (a) S 0 0 0 0"), Some(outside));
    }

    #[test]
    fn a_process_that_is_being_reaped_belongs_to_nobody() {
        let reaped = Stat { alive: false, parent: None, group: None, session: None };
        assert_eq!(Stat::parse("7 (a) X -1 -1 -1 0"), Some(reaped));
    }
}
