//! Who holds a kernel lock, for error texts.

use std::{fs, fs::File, os::unix::fs::MetadataExt};

/// Names the process that holds the kernel lock on a file, as far as `/proc` tells.
pub(crate) fn describe(file: &File) -> String {
    let found = file.metadata().ok().and_then(|file| {
        let device = file.dev();
        let wanted =
            format!("{:02x}:{:02x}:{}", rustix::fs::major(device), rustix::fs::minor(device), file.ino());
        find(&fs::read_to_string("/proc/locks").ok()?, &wanted)
    });
    match found {
        Some(pid) => match fs::read_to_string(format!("/proc/{pid}/comm")) {
            Ok(command) => format!("process {pid} ({})", command.trim_end()),
            Err(_) => format!("process {pid}"),
        },
        None => "another process".into(),
    }
}

/// `1: FLOCK  ADVISORY  WRITE 9015 fe:00:10010948 0 EOF`; waiting requests have `->` after the number.
fn find(locks: &str, wanted: &str) -> Option<u32> {
    locks.lines().find_map(|line| match line.split_ascii_whitespace().collect::<Vec<_>>()[..] {
        [_, "FLOCK", _, _, pid, inode, ..] if inode == wanted => pid.parse().ok(),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_holder_of_this_very_file_is_named() {
        let locks = "1: POSIX  ADVISORY  WRITE 11 fe:00:77 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 22 fe:01:77 0 EOF\n\
                     3: FLOCK  ADVISORY  READ  33 fe:00:77 0 EOF\n\
                     3: -> FLOCK  ADVISORY  WRITE 44 fe:00:77 0 EOF\n\
                     garbage\n";
        assert_eq!(find(locks, "fe:00:77"), Some(33));
        assert_eq!(find(locks, "fe:00:78"), None);
    }
}
