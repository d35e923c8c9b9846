use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
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

/// How long after its last use a [shared](shared) directory is kept.
const KEPT: Duration = Duration::from_mins(30);

const SHARED: &str = "polylock-shared-";

pub(crate) fn scratch() -> io::Result<Scratch> {
    let parent = parent();
    // A program that is killed cannot tidy up; the next one does it.
    for entry in fs::read_dir(&parent)?.flatten() {
        let (name, path) = (entry.file_name(), entry.path());
        let name = name.to_string_lossy();
        let left_over = name.starts_with(PREFIX) && is_left_over(&path).unwrap_or(false)
            || name.starts_with(SHARED) && is_older_than(KEPT, &path).unwrap_or(false);
        if left_over {
            let _ = fs::remove_dir_all(path);
        }
    }
    let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent)?;
    let in_use = File::open(folder.path())?;
    in_use.lock()?;
    Ok(Scratch { folder, _in_use: in_use })
}

/// A directory that several programs share, whose names for it are the same.
pub(crate) fn shared(name: &str) -> io::Result<PathBuf> {
    let path = parent().join(format!("{SHARED}{name}"));
    fs::create_dir_all(&path)?;
    File::open(&path)?.set_modified(SystemTime::now())?;
    Ok(path)
}

fn parent() -> PathBuf {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { memory.to_path_buf() } else { std::env::temp_dir() }
}

impl Scratch {
    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Whether nobody uses the directory any more. Its lock tells it across containers too, unlike a process's number.
fn is_left_over(path: &Path) -> io::Result<bool> {
    Ok(is_older_than(SETTLED, path)? && File::open(path)?.try_lock().is_ok())
}

fn is_older_than(age: Duration, path: &Path) -> io::Result<bool> {
    Ok(fs::metadata(path)?.modified()?.elapsed().is_ok_and(|elapsed| elapsed >= age))
}

#[cfg(test)]
mod tests {
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
    fn what_is_shared_outlives_the_programs_for_a_while() {
        let name = format!("{}-test", std::process::id());
        let path = shared(&name).unwrap();
        let used = |ago: Duration| File::open(&path).unwrap().set_modified(SystemTime::now() - ago).unwrap();
        used(KEPT / 2);
        drop(scratch().unwrap());
        assert!(path.exists(), "nobody has locked it, and still it is in use");
        used(KEPT * 2);
        assert_eq!(shared(&name).unwrap(), path);
        drop(scratch().unwrap());
        assert!(path.exists(), "it was used again");
        used(KEPT * 2);
        drop(scratch().unwrap());
        assert!(!path.exists());
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
