use std::{
    fs::{self, File},
    io,
    path::Path,
    time::Duration,
};

use tempfile::TempDir;

/// A directory that goes away with the value: in memory where there is such a place, since the suite
/// proves no disk.
#[derive(Debug)]
pub(crate) struct Scratch {
    folder: TempDir,
    /// Locked as long as the value lives, whatever becomes of its process.
    _in_use: File,
}

/// How old a directory is before anybody doubts that it is in use: long enough to lock it after it was made.
const SETTLED: Duration = Duration::from_secs(10);

const PREFIX: &str = "polylock-suite-";

pub(crate) fn scratch() -> io::Result<Scratch> {
    let memory = Path::new("/dev/shm");
    let parent = if memory.is_dir() { memory.to_path_buf() } else { std::env::temp_dir() };
    // A program that is killed cannot tidy up; the next one does it.
    for entry in fs::read_dir(&parent)?.flatten() {
        let ours = entry.file_name().to_string_lossy().starts_with(PREFIX);
        if ours && is_left_over(&entry.path()).unwrap_or(false) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent)?;
    let in_use = File::open(folder.path())?;
    in_use.lock()?;
    Ok(Scratch { folder, _in_use: in_use })
}

impl Scratch {
    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Whether nobody uses the directory any more. Its lock tells it across containers too, unlike a process's number.
fn is_left_over(path: &Path) -> io::Result<bool> {
    let folder = File::open(path)?;
    let settled = folder.metadata()?.modified()?.elapsed().is_ok_and(|age| age >= SETTLED);
    Ok(settled && folder.try_lock().is_ok())
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn only_what_nobody_uses_any_more_is_left_over() {
        let own = scratch().unwrap();
        let age = |path: &Path| File::open(path)?.set_modified(SystemTime::now() - SETTLED * 2);
        age(own.path()).unwrap();
        assert!(!is_left_over(own.path()).unwrap(), "it is in use");
        let other = tempfile::tempdir_in(own.path()).unwrap();
        assert!(!is_left_over(other.path()).unwrap(), "it may be about to be used");
        age(other.path()).unwrap();
        assert!(is_left_over(other.path()).unwrap());
    }

    #[test]
    fn what_a_killed_program_left_is_removed() {
        let own = scratch().unwrap();
        let left = tempfile::Builder::new().prefix(PREFIX).tempdir_in(own.path().parent().unwrap()).unwrap();
        File::open(left.path()).unwrap().set_modified(SystemTime::now() - SETTLED * 2).unwrap();
        let next = scratch().unwrap();
        assert!(!left.path().exists() && own.path().exists() && next.path().exists());
    }
}
