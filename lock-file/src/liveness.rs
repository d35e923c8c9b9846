use std::{
    fs::File,
    os::fd::OwnedFd,
    sync::Arc,
    thread,
    time::{Duration, SystemTime},
};

use lock_core::{Error, ErrorKind, Owner, Result};
use rustix::fs::OFlags;

use crate::{directory::Directory, error::failed};

/// The directory of the liveness files.
const DIRECTORY: &str = ".alive";

/// How long a dead process's file is kept: longer than any lease in which it may be named.
const KEPT: Duration = Duration::from_hours(72);

/// The sign that this process lives: a file with a kernel lock that ends with its last descriptor.
///
/// Whoever can lock the file of a holder knows that the holder is dead, and so is every child that
/// inherited the descriptor. A file that is *missing* proves nothing, so the lease decides: a backend
/// that is dropped removes its file first, because its process lives on.
#[derive(Debug)]
pub(crate) struct Liveness {
    processes: Arc<Processes>,
    id: String,
    file: File,
}

/// The liveness files of all processes.
#[derive(Debug)]
pub(crate) struct Processes(Directory);

impl Liveness {
    /// Shows that this process lives.
    pub(crate) fn show(locks: &Directory) -> Result<Self> {
        let processes = Arc::new(Processes(locks.subdirectory(DIRECTORY)?));
        processes.sweep();
        let id = Owner::random()?.to_hex();
        let path = processes.0.path_of(&id);
        // Opened for writing, since the kernel tells watchers of the end of writers only.
        let file = processes.0.file(&id, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)?;
        let file = file.ok_or_else(|| Error::new(ErrorKind::Internal, "a created file is missing"))?;
        file.try_lock().map_err(|e| failed("lock the new", &path, e))?;
        Ok(Self { processes, id, file })
    }

    /// What states of claims say of their process.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// The liveness files of all processes.
    pub(crate) fn processes(&self) -> &Arc<Processes> {
        &self.processes
    }

    /// A second descriptor: the sign lasts until both are closed.
    pub(crate) fn duplicate(&self) -> Result<OwnedFd> {
        let duplicate = self.file.try_clone();
        Ok(duplicate.map_err(|e| failed("duplicate", &self.processes.0.path_of(&self.id), e))?.into())
    }
}

impl Drop for Liveness {
    fn drop(&mut self) {
        // If that fails it looks like a crash, and the file is swept later.
        let _ = self.processes.0.remove(&self.id);
    }
}

impl Processes {
    /// The directory.
    pub(crate) fn directory(&self) -> &Directory {
        &self.0
    }

    /// Whether a process is dead for certain.
    pub(crate) fn is_dead(&self, id: &str) -> bool {
        let Ok(Some(file)) = self.0.file(id, OFlags::RDONLY) else { return false };
        // Shared, so that two who look at the same time do not take each other for the process.
        file.try_lock_shared().is_ok()
    }

    /// Whether a process that closed its file is dead: the kernel reports the close just before it ends
    /// the lock.
    pub(crate) fn dies(&self, id: &str) -> bool {
        (0..50).any(|_| {
            self.is_dead(id) || {
                thread::sleep(Duration::from_millis(1));
                false
            }
        })
    }

    /// Removes the files that dead processes left long ago.
    ///
    /// The wall clock decides, which may step: a file that is removed too early makes a claim last
    /// until the end of its lease, no longer.
    fn sweep(&self) {
        let Ok(entries) = self.0.own_path().read_dir() else { return };
        for entry in entries.flatten() {
            let modified = entry.metadata().and_then(|found| found.modified());
            let age = modified.ok().and_then(|modified| SystemTime::now().duration_since(modified).ok());
            if let Some(id) = entry.file_name().to_str()
                && age.is_some_and(|age| age > KEPT)
                && self.is_dead(id)
            {
                let _ = self.0.remove(id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn locks() -> (tempfile::TempDir, Directory) {
        let folder = tempfile::tempdir().unwrap();
        let directory = Directory::open(&folder.path().join("locks")).unwrap();
        (folder, directory)
    }

    #[test]
    fn a_process_lives_until_its_last_descriptor_is_closed() {
        let (_folder, locks) = locks();
        let observer = Liveness::show(&locks).unwrap();
        assert!(!observer.processes.is_dead(&observer.id), "even to itself");

        let process = File::create(observer.processes.0.path_of("process")).unwrap();
        process.lock().unwrap();
        let inherited = process.try_clone().unwrap();
        drop(process);
        assert!(!observer.processes.is_dead("process"));
        drop(inherited);
        assert!(observer.processes.is_dead("process"));
    }

    #[test]
    fn a_death_that_is_just_happening_is_waited_for() {
        let (_folder, locks) = locks();
        let observer = Liveness::show(&locks).unwrap();
        let process = File::create(observer.processes.0.path_of("process")).unwrap();
        process.lock().unwrap();
        let dying = thread::spawn(move || {
            thread::sleep(Duration::from_millis(5));
            drop(process);
        });
        assert!(observer.processes.dies("process"));
        dying.join().unwrap();
        assert!(!observer.processes.dies(&observer.id));
    }

    #[test]
    fn a_missing_file_proves_nothing() {
        let (_folder, locks) = locks();
        let observer = Liveness::show(&locks).unwrap();
        let left = Liveness::show(&locks).unwrap().id.clone();
        for id in [&*left, "never", "../locks", ""] {
            assert!(!observer.processes.is_dead(id), "{id:?}");
        }
    }

    #[test]
    fn files_of_the_dead_are_swept_when_no_lease_can_name_them() {
        let (_folder, locks) = locks();
        let living = Liveness::show(&locks).unwrap();
        let old = SystemTime::now() - KEPT - Duration::from_secs(60);
        living.file.set_modified(old).unwrap();
        let create = |id: &str| File::create(living.processes.0.path_of(id)).unwrap();
        create("old").set_modified(old).unwrap();
        create("young");

        drop(Liveness::show(&locks).unwrap());
        let exists = |id: &str| living.processes.0.path_of(id).exists();
        assert!(exists(&living.id) && exists("young") && !exists("old"));
    }
}
