use std::{fs, io, net::SocketAddr, path::Path};

use super::{Scratch, scratch};
use crate::{Lever, Server};

/// A fresh directory as a server: what backends that keep locks in files are given.
#[derive(Debug)]
pub struct Directory {
    scheme: &'static str,
    root: Scratch,
}

impl Directory {
    /// Makes the directory; its URL is `scheme://PATH`.
    ///
    /// # Errors
    ///
    /// If there is no room for it.
    pub fn new(scheme: &'static str) -> io::Result<Self> {
        Ok(Self { scheme, root: scratch()? })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.root.path()
    }
}

impl Server for Directory {
    fn url(&self, _link: Option<SocketAddr>) -> String {
        format!("{}://{}", self.scheme, self.path().display())
    }

    fn pull(&self, lever: Lever<'_>) -> io::Result<()> {
        match lever {
            Lever::DeleteRecord(file) => fs::remove_file(file),
            Lever::LoseData => {
                for entry in fs::read_dir(self.path())? {
                    let path = entry?.path();
                    if path.is_dir() { fs::remove_dir_all(path)? } else { fs::remove_file(path)? }
                }
                Ok(())
            }
            _ => {
                Err(io::Error::new(io::ErrorKind::Unsupported, format!("a directory has no lever {lever:?}")))
            }
        }
    }
}
