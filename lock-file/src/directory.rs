use std::{
    fs::{DirBuilder, File},
    io,
    os::{
        fd::{AsFd, AsRawFd},
        unix::fs::{DirBuilderExt, MetadataExt},
    },
    path::{Path, PathBuf},
};

use lock_core::{Error, ErrorKind, Result};
use rustix::{
    fs::{AtFlags, CWD, Mode, OFlags},
    io::Errno,
};

use crate::{
    error::{failed, foreign},
    file_system::FileSystem,
};

/// The lock directory, held open: whatever happens to its path, every file is looked up in this one.
#[derive(Debug)]
pub(crate) struct Directory {
    handle: File,
    path: PathBuf,
}

impl Directory {
    /// Opens a directory, or creates it for this user alone; refuses one that others could change.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        if !path.is_absolute() {
            let path = path.display();
            return Err(Error::invalid_input(format!("the lock directory's path {path} is not absolute")));
        }
        // Without a slash at the end, which would follow a link after all.
        let path: PathBuf = path.components().collect();
        if path.is_symlink() {
            return Err(refused(&path, "is a symbolic link, which is not followed; give the real path"));
        }
        create(&path).map_err(|e| failed("create the lock directory", &path, e))?;
        let handle = open_directory(CWD, &path).map_err(|e| failed("open the lock directory", &path, e))?;
        let found = handle.metadata().map_err(|e| failed("look at the lock directory", &path, e))?;
        if found.uid() != rustix::process::geteuid().as_raw() {
            return Err(refused(&path, "belongs to another user"));
        }
        if found.mode() & 0o022 != 0 {
            return Err(refused(&path, "can be written by other users; run chmod go-w on it"));
        }
        Ok(Self { handle, path })
    }

    /// Opens a directory in this one, or creates it.
    pub(crate) fn subdirectory(&self, name: &str) -> Result<Self> {
        let path = self.path.join(name);
        match rustix::fs::mkdirat(&self.handle, name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(failed("create", &path, error)),
        }
        let handle = open_directory(&self.handle, name).map_err(|e| failed("open", &path, e))?;
        Ok(Self { handle, path })
    }

    /// What it is on, unless that is a network and networks are not accepted.
    pub(crate) fn file_system(&self, network: bool) -> Result<FileSystem> {
        let path = self.path.display();
        match FileSystem::of(&self.handle).map_err(|e| failed("examine", &self.path, e))? {
            FileSystem::Network(kind) if !network => Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "{path} is on a network file system ({kind}): locks there would exclude the processes \
                     of one machine at most; choose a local directory, or force it by force_network=true"
                ),
            )),
            accepted => Ok(accepted),
        }
    }

    /// Opens a regular file without following links; `None` if there is none.
    pub(crate) fn file(&self, name: &str, flags: OFlags) -> Result<Option<File>> {
        // NONBLOCK: a named pipe in the file's place must not hang us.
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = match rustix::fs::openat(&self.handle, name, flags, Mode::RUSR | Mode::WUSR) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT) if !flags.contains(OFlags::CREATE) => return Ok(None),
            Err(Errno::ISDIR) => return Err(foreign(&self.path_of(name), "is a directory, no file of ours")),
            Err(error) => return Err(failed("open", &self.path_of(name), error)),
        };
        let found = file.metadata().map_err(|e| failed("look at", &self.path_of(name), e))?;
        match found.is_file() {
            true => Ok(Some(file)),
            false => Err(foreign(&self.path_of(name), "is no regular file")),
        }
    }

    /// Whether the name still stands for this open file.
    pub(crate) fn names(&self, name: &str, file: &File) -> io::Result<bool> {
        let opened = file.metadata()?;
        match rustix::fs::statat(&self.handle, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(named) => Ok((named.st_dev, named.st_ino) == (opened.dev(), opened.ino())),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Gives a file a second name, the same in another directory.
    pub(crate) fn link(&self, other: &Self, name: &str) -> io::Result<()> {
        Ok(rustix::fs::linkat(&self.handle, name, &other.handle, name, AtFlags::empty())?)
    }

    /// Removes a file.
    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.handle, name, AtFlags::empty())?)
    }

    /// Makes the names in it durable.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.handle.sync_all()
    }

    /// Where a file in it is, for people.
    pub(crate) fn path_of(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// A path to this very directory, for this process while it is open.
    pub(crate) fn own_path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.handle.as_raw_fd()).into()
    }
}

fn open_directory(at: impl AsFd, path: impl rustix::path::Arg) -> rustix::io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(at, path, flags, Mode::empty()).map(File::from)
}

/// Creates what is missing of the path, durably: the fencing counters are to outlive a loss of power.
fn create(path: &Path) -> io::Result<()> {
    let missing: Vec<&Path> = path.ancestors().take_while(|ancestor| !ancestor.exists()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    for parent in missing.iter().filter_map(|created| created.parent()) {
        File::open(parent)?.sync_all()?;
    }
    Ok(())
}

fn refused(path: &Path, why: &str) -> Error {
    Error::invalid_input(format!("the lock directory {} {why}", path.display()))
}
