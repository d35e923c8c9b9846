use std::{fs, io, path::Path, process};

use rustix::process::{Pid, test_kill_process};
use tempfile::TempDir;

/// A directory that goes away with the value: in memory where there is such a place, since the suite
/// proves no disk.
pub(crate) fn scratch() -> io::Result<TempDir> {
    let memory = Path::new("/dev/shm");
    let parent = if memory.is_dir() { memory.to_path_buf() } else { std::env::temp_dir() };
    // A program that is killed cannot tidy up; the next one does it.
    for entry in fs::read_dir(&parent)?.flatten() {
        if is_left_over(&entry.file_name().to_string_lossy()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    tempfile::Builder::new().prefix(&format!("{PREFIX}{}-", process::id())).tempdir_in(parent)
}

const PREFIX: &str = "polylock-suite-";

/// Whether the name is that of a scratch directory whose process is gone.
fn is_left_over(name: &str) -> bool {
    let pid = name.strip_prefix(PREFIX).and_then(|rest| rest.split_once('-'));
    let pid = pid.and_then(|(pid, _)| pid.parse().ok()).and_then(Pid::from_raw);
    pid.is_some_and(|pid| test_kill_process(pid) == Err(rustix::io::Errno::SRCH))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_dead_process_left_is_left_over() {
        let own = scratch().unwrap();
        assert!(!is_left_over(&own.path().file_name().unwrap().to_string_lossy()));
        let mut child = process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        child.wait().unwrap();
        assert!(is_left_over(&format!("{PREFIX}{pid}-x")));
        for other in ["polylock", "polylock-suite-", "polylock-suite-1x-y", "home"] {
            assert!(!is_left_over(other), "{other}");
        }
    }
}
