use std::{io, path::Path};

use lock_core::{Error, ErrorKind};

/// What a failed file operation means to the caller.
pub(crate) fn failed(doing: &str, path: &Path, error: impl Into<io::Error>) -> Error {
    let error = error.into();
    let path = path.display();
    let (kind, hint) = match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => (ErrorKind::Denied, ""),
        io::ErrorKind::NotFound => (ErrorKind::InvalidInput, "; was the lock directory removed?"),
        io::ErrorKind::NotADirectory => (ErrorKind::InvalidInput, "; it is no directory"),
        // ELOOP: what O_NOFOLLOW answers. Its `io::ErrorKind` is unstable.
        _ if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
            (ErrorKind::Foreign, "; symbolic links are not followed")
        }
        _ => (ErrorKind::Unavailable, ""),
    };
    Error::new(kind, format!("could not {doing} {path}{hint}: {error}")).with_source(error)
}

/// What stands in the lock's place is not ours, or not whole.
pub(crate) fn foreign(path: &Path, what: &str) -> Error {
    Error::new(ErrorKind::Foreign, format!("{}: {what}", path.display()))
}
