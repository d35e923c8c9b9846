use std::{error::Error as StdError, fmt, sync::Arc};

use crate::{Loss, Name};

/// A `Result` with polylock's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call failed: a [kind](ErrorKind) to branch on, a text for people, and the cause.
///
/// A busy lock is no error (it is `None`), and neither is the loss of a held one (a [`Loss`]).
/// An error from a backend's verb means that its outcome is *unknown*. Texts and causes never hold
/// a password.
#[derive(Clone)]
pub struct Error(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    message: String,
    transient: bool,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

/// What went wrong, coarsely.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// [`Locks::close`](crate::Locks::close) was called.
    Closed,
    /// The server refused the credentials or the operation. Never retried.
    Denied,
    /// What the server holds under the lock's key is not a lock of ours. Never retried.
    Foreign,
    /// A bug in polylock or an operating system that gives no randomness.
    Internal,
    /// A name, an option, a URL or a path that cannot be used.
    InvalidInput,
    /// The lock was lost; [`Loss`] says why.
    Lost,
    /// There is no tokio runtime here, or it has shut down.
    NoRuntime,
    /// The server did not answer within the limit; the outcome is unknown.
    Timeout,
    /// Too many tasks wait already.
    TooManyWaiters,
    /// The server cannot be reached or cannot serve just now; the outcome is unknown.
    Unavailable,
    /// A required guarantee is not promised by this backend as it is configured.
    Unmet,
    /// The server, the platform or this build cannot do what was asked.
    Unsupported,
}

impl Error {
    /// An error of a kind, with a text that says what failed and, where it can, what to do.
    ///
    /// [`Unavailable`](ErrorKind::Unavailable) and [`Timeout`](ErrorKind::Timeout) are transient.
    #[must_use]
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        let transient = matches!(kind, ErrorKind::Unavailable | ErrorKind::Timeout);
        Self(Arc::new(Inner { kind, message: message.into(), transient, source: None }))
    }

    /// Shorthand for [`ErrorKind::InvalidInput`].
    #[must_use]
    pub fn invalid_input(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidInput, message)
    }

    /// Adds the cause. It must not print secrets.
    #[must_use]
    pub fn with_source(mut self, source: impl StdError + Send + Sync + 'static) -> Self {
        Arc::make_mut(&mut self.0).source = Some(Arc::new(source));
        self
    }

    /// Puts the operation and the lock's name in front of the text.
    #[must_use]
    pub(crate) fn during(mut self, verb: &str, name: &Name) -> Self {
        let inner = Arc::make_mut(&mut self.0);
        inner.message = format!("{verb} {:?}: {}", name.as_str(), inner.message);
        self
    }

    /// Whether core takes it for the word that the server did nothing: a new claim that hears it is not released.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        use ErrorKind::{Denied, Foreign, InvalidInput, Unsupported};
        matches!(self.0.kind, Denied | Foreign | InvalidInput | Unsupported)
    }

    /// What went wrong, coarsely.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Whether the same call may succeed later without anything being mended by hand.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        self.0.transient
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("Error");
        out.field("kind", &self.0.kind).field("message", &self.0.message);
        if let Some(source) = &self.0.source {
            out.field("source", source);
        }
        out.finish()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_ref().map(|source| &**source as &(dyn StdError + 'static))
    }
}

impl From<Loss> for Error {
    fn from(loss: Loss) -> Self {
        Self::new(ErrorKind::Lost, format!("the lock was lost: {loss}"))
    }
}
