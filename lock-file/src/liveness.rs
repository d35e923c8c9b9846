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

/// Where a process opens its file, and where waiters listen.
const LISTENED: &str = ".wake";
/// Where everybody looks at it: a second name of the same file, so that looking makes no noise.
const LOOKED_AT: &str = ".alive";

/// How often a process that closed its file is looked at, a millisecond apart: longer than the kernel takes.
const LOOKS: u32 = 50;

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
pub(crate) struct Processes {
    listened: Directory,
    looked_at: Directory,
}

impl Liveness {
    /// Shows that this process lives.
    pub(crate) fn show(locks: &Directory) -> Result<Self> {
        let (listened, looked_at) = (locks.subdirectory(LISTENED)?, locks.subdirectory(LOOKED_AT)?);
        let processes = Processes { listened, looked_at };
        processes.sweep();
        let id = Owner::random()?.to_hex();
        let path = processes.listened.path_of(&id);
        // Opened for writing, since the kernel tells watchers of the end of writers only.
        let file = processes.listened.file(&id, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)?;
        let file = file.ok_or_else(|| Error::new(ErrorKind::Internal, "a created file is missing"))?;
        file.try_lock().map_err(|e| failed("lock the new", &path, e))?;
        processes.listened.link(&processes.looked_at, &id).map_err(|e| failed("link", &path, e))?;
        Ok(Self { processes: Arc::new(processes), id, file })
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
        Ok(duplicate.map_err(|e| failed("duplicate", &self.processes.listened.path_of(&self.id), e))?.into())
    }
}

impl Drop for Liveness {
    fn drop(&mut self) {
        self.processes.remove(&self.id);
    }
}

impl Processes {
    /// The directory that waiters listen to.
    pub(crate) fn listened(&self) -> &Directory {
        &self.listened
    }

    /// Whether a process is dead for certain.
    pub(crate) fn is_dead(&self, id: &str) -> bool {
        is_unlocked(&self.looked_at, id) == Some(true)
    }

    /// Whether a process that closed its file is dead: the kernel tells of the close just before it ends
    /// the lock.
    pub(crate) fn dies(&self, id: &str) -> bool {
        self.dies_within(LOOKS, id)
    }

    fn dies_within(&self, looks: u32, id: &str) -> bool {
        for _ in 0..looks {
            if let Some(false) = is_unlocked(&self.looked_at, id) {
                thread::sleep(Duration::from_millis(1));
            } else {
                return self.is_dead(id);
            }
        }
        false
    }

    /// Removes the files that dead processes left long ago.
    ///
    /// The wall clock decides, which may step: a file that is removed too early makes a claim last
    /// until the end of its lease, no longer.
    fn sweep(&self) {
        let Ok(entries) = self.listened.own_path().read_dir() else { return };
        for entry in entries.flatten() {
            let modified = entry.metadata().and_then(|found| found.modified());
            let age = modified.ok().and_then(|modified| SystemTime::now().duration_since(modified).ok());
            if let Some(id) = entry.file_name().to_str().filter(|name| is_id(name))
                && age.is_some_and(|age| age > KEPT)
                && is_unlocked(&self.listened, id) == Some(true)
            {
                self.remove(id);
            }
        }
    }

    fn remove(&self, id: &str) {
        // If that fails, the process looks killed when it has ended, and the file is swept later.
        let _ = self.looked_at.remove(id);
        let _ = self.listened.remove(id);
    }
}

/// Whether a file's name is that of a process, not that of a state file.
pub(crate) fn is_id(name: &str) -> bool {
    Owner::from_hex(name).is_some()
}

/// Whether nobody holds the kernel's lock on a file; `None` if there is no file to be seen.
fn is_unlocked(directory: &Directory, id: &str) -> Option<bool> {
    let file = directory.file(id, OFlags::RDONLY).ok().flatten()?;
    // Shared, so that two who look at the same time do not take each other for the process.
    Some(file.try_lock_shared().is_ok())
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

        let process = File::create(observer.processes.looked_at.path_of("process")).unwrap();
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
        let process = File::create(observer.processes.looked_at.path_of("process")).unwrap();
        process.lock().unwrap();
        let dying = thread::spawn(move || {
            thread::sleep(Duration::from_millis(5));
            drop(process);
        });
        // Many seconds, since a busy machine may take long to let the other thread close the file.
        assert!(observer.processes.dies_within(20_000, "process"));
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
        let path = |id: &str| living.processes.listened.path_of(id);
        let create = |id: &str| File::create(path(id)).unwrap();
        let [old_id, young_id] = ["0".repeat(32), "1".repeat(32)];
        create(&old_id).set_modified(old).unwrap();
        create(&young_id);
        create("a.lock").set_modified(old).unwrap();

        drop(Liveness::show(&locks).unwrap());
        assert!([&living.id, &young_id, "a.lock"].iter().all(|id| path(id).exists()));
        assert!(!path(&old_id).exists());
    }
}
