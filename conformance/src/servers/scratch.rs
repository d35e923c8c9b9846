use std::{io, path::Path};

use tempfile::TempDir;

/// A directory that goes away with the value: in memory where there is such a place, since the suite
/// proves no disk.
pub(crate) fn scratch() -> io::Result<TempDir> {
    let memory = Path::new("/dev/shm");
    let parent = if memory.is_dir() { memory.to_path_buf() } else { std::env::temp_dir() };
    tempfile::Builder::new().prefix("polylock-").tempdir_in(parent)
}
