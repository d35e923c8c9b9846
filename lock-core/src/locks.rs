use crate::{Error, ErrorKind, Result};

/// The runtime that is entered here.
pub(crate) fn current_runtime() -> Result<tokio::runtime::Handle> {
    tokio::runtime::Handle::try_current().map_err(|e| {
        Error::new(ErrorKind::NoRuntime, "locks are opened inside a tokio runtime; there is none here")
            .with_source(e)
    })
}
