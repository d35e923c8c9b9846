use std::{
    fs::{File, TryLockError},
    hash::{BuildHasher, RandomState},
    os::unix::fs::FileExt,
    path::PathBuf,
    sync::Weak,
    thread,
    time::Duration,
};

use lock_core::{Error, ErrorKind, Moment, Result};
use rustix::fs::OFlags;
use serde::Serialize;

use crate::{
    blocker,
    directory::Directory,
    error::{failed, foreign},
    state::{self, Grant, LEASE_PAGE, Lease, PAGE, SIZE, State},
};

/// An open state file, perhaps locked.
#[derive(Debug)]
pub(crate) struct StateFile<'a> {
    directory: &'a Directory,
    name: &'a str,
    file: File,
}

impl<'a> StateFile<'a> {
    /// Opens the file; creates it for who wants to hold.
    pub(crate) fn open_or_create(directory: &'a Directory, name: &'a str) -> Result<Self> {
        let file = directory.file(name, OFlags::RDWR | OFlags::CREATE)?;
        let file = file.ok_or_else(|| Error::new(ErrorKind::Internal, "a created file is missing"))?;
        Ok(Self { directory, name, file })
    }

    /// Opens the file if there is one.
    pub(crate) fn open(directory: &'a Directory, name: &'a str) -> Result<Option<Self>> {
        let file = directory.file(name, OFlags::RDWR)?;
        Ok(file.map(|file| Self { directory, name, file }))
    }

    /// Reads the state. Without the lock it may be half of one and half of the next.
    pub(crate) fn read(&self) -> Result<State> {
        // One byte more than ours has, to see that a file is too long.
        let mut bytes = vec![0; SIZE + 1];
        let mut filled = 0;
        loop {
            match self.file.read_at(&mut bytes[filled..], filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed("read", &self.path(), error)),
            }
        }
        State::read(&bytes[..filled]).map_err(|corrupt| self.foreign(corrupt))
    }

    /// Takes the kernel's lock, which ends with this value; `None` if that must be tried again.
    pub(crate) fn try_lock(&self, effort: &mut Effort) -> Result<bool> {
        match self.file.try_lock() {
            // Somebody may have put another file in its place, and locked that one.
            Ok(()) => {
                let named = self.directory.names(self.name, &self.file);
                named.map_err(|e| failed("look at", &self.path(), e))
            }
            Err(TryLockError::WouldBlock) => {
                effort.pause(|| {
                    format!("{} is locked by {}", self.path().display(), blocker::describe(&self.file))
                })?;
                Ok(false)
            }
            Err(TryLockError::Error(error)) => Err(failed("lock", &self.path(), error)),
        }
    }

    /// Gives a new file its full size, and makes it and its name durable.
    pub(crate) fn make(&self) -> Result<()> {
        let made = self.file.write_all_at(&[0; SIZE], 0).and_then(|()| self.file.sync_all());
        made.and_then(|()| self.directory.sync()).map_err(|e| failed("create", &self.path(), e))
    }

    /// Writes a grant, durably.
    pub(crate) fn write_grant(&self, grant: &Grant) -> Result<()> {
        self.write(grant.page(), grant)?;
        self.file.sync_data().map_err(|e| failed("sync", &self.path(), e))
    }

    /// Writes the newest grant's lease, for as long as this machine runs.
    pub(crate) fn write_lease(&self, lease: &Lease) -> Result<()> {
        self.write(LEASE_PAGE, lease)
    }

    /// The error for a file that is not ours, or not whole.
    pub(crate) fn foreign(&self, what: &str) -> Error {
        foreign(&self.path(), what)
    }

    fn write(&self, page: usize, record: &impl Serialize) -> Result<()> {
        let bytes = state::page(record).map_err(|e| {
            Error::new(ErrorKind::Internal, "a state could not be written down").with_source(e)
        })?;
        let written = self.file.write_all_at(&bytes, (page * PAGE) as u64);
        written.map_err(|e| failed("write", &self.path(), e))
    }

    fn path(&self) -> PathBuf {
        self.directory.path_of(self.name)
    }
}

/// How hard a verb tries to get the kernel's lock: until nobody wants the answer, or for so long.
#[derive(Debug)]
pub(crate) struct Effort {
    wanted: Weak<()>,
    end: Moment,
    pause: Duration,
}

impl Effort {
    const FIRST_PAUSE: Duration = Duration::from_millis(1);
    const LONGEST_PAUSE: Duration = Duration::from_millis(10);

    /// Whoever owns the other end of `wanted` waits for the answer.
    pub(crate) fn new(wanted: Weak<()>, patience: Duration) -> Self {
        Self { wanted, end: Moment::now() + patience, pause: Self::FIRST_PAUSE }
    }

    /// Fails when nobody waits for the answer any more. To be asked under the kernel's lock, before a
    /// write: whatever comes after the caller went away must not be undone by this verb.
    pub(crate) fn still_wanted(&self) -> Result<()> {
        match self.wanted.strong_count() {
            0 => Err(Error::new(ErrorKind::Timeout, "the caller gave up")),
            _ => Ok(()),
        }
    }

    fn pause(&mut self, in_the_way: impl FnOnce() -> String) -> Result<()> {
        self.still_wanted()?;
        if Moment::now() >= self.end {
            return Err(Error::new(ErrorKind::Timeout, in_the_way()));
        }
        // From half of the pause to the whole, so that the waiting do not march in step.
        let jitter = (RandomState::new().hash_one(0) % 1024) as u32;
        thread::sleep(self.pause / 2 + self.pause / 2048 * jitter);
        self.pause = (self.pause * 2).min(Self::LONGEST_PAUSE);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, sync::Arc};

    use super::*;

    #[test]
    fn a_file_that_was_replaced_is_not_taken_for_the_lock() {
        let folder = tempfile::tempdir().unwrap();
        let directory = Directory::open(&folder.path().join("locks")).unwrap();
        let path = directory.path_of("a.lock");
        let caller = Arc::new(());
        let mut effort = Effort::new(Arc::downgrade(&caller), Duration::ZERO);

        let kept = StateFile::open_or_create(&directory, "a.lock").unwrap();
        assert!(kept.try_lock(&mut effort).unwrap());
        drop(kept);

        let removed = StateFile::open_or_create(&directory, "a.lock").unwrap();
        fs::remove_file(&path).unwrap();
        assert!(!removed.try_lock(&mut effort).unwrap());

        let replaced = StateFile::open_or_create(&directory, "a.lock").unwrap();
        fs::write(folder.path().join("other"), "").unwrap();
        fs::rename(folder.path().join("other"), &path).unwrap();
        assert!(!replaced.try_lock(&mut effort).unwrap());
    }

    #[test]
    fn a_caller_that_went_away_ends_the_effort() {
        let caller = Arc::new(());
        let mut effort = Effort::new(Arc::downgrade(&caller), Duration::from_secs(60));
        effort.still_wanted().unwrap();
        effort.pause(String::new).unwrap();
        drop(caller);
        effort.still_wanted().unwrap_err();
        effort.pause(|| panic!("nobody reads this")).unwrap_err();
    }
}
