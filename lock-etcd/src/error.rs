use std::error::Error as StdError;

use etcd_client::Error as EtcdError;
use lock_core::{Error, ErrorKind};

/// Why a request brought no answer that can be used.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) error: Error,
    pub(crate) nature: Nature,
}

/// What a failure says about the request and about the member that was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nature {
    /// The server's word: it did not do it, and another member would say the same.
    Told,
    /// The server's word that the lease is over.
    LeaseGone,
    /// It certainly did not reach the member: another may be asked.
    NeverSent,
    /// It may have been done; the member, or the way to it, is in doubt.
    Unknown,
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        failure.error
    }
}

// The numbers of gRPC's codes.
const UNKNOWN: i32 = 2;
const INVALID_ARGUMENT: i32 = 3;
const NOT_FOUND: i32 = 5;
const PERMISSION_DENIED: i32 = 7;
const RESOURCE_EXHAUSTED: i32 = 8;
const FAILED_PRECONDITION: i32 = 9;
const UNIMPLEMENTED: i32 = 12;
const UNAUTHENTICATED: i32 = 16;

pub(crate) fn from_etcd(failed: &EtcdError) -> Failure {
    let (code, message) = match failed {
        EtcdError::GRpcStatus(status) => (i32::from(status.code()), status.message().to_owned()),
        // The driver's own word for a keep-alive that was answered with no time left.
        EtcdError::LeaseKeepAliveError(text) if text == "lease not found" => (NOT_FOUND, text.clone()),
        EtcdError::InvalidArgs(text) => return told(ErrorKind::InvalidInput, text),
        EtcdError::InvalidUri(_) => return told(ErrorKind::InvalidInput, "an address is not host:port"),
        other => (UNKNOWN, other.to_string()),
    };
    let says = |text: &str| message.contains(text);
    match code {
        NOT_FOUND if says("lease not found") => Failure { nature: Nature::LeaseGone, ..told_of(&message) },
        PERMISSION_DENIED => told(ErrorKind::Denied, &message),
        // The driver has logged in again if it could; a new connection does in any case.
        UNAUTHENTICATED if says("invalid auth token") => unknown(&message),
        INVALID_ARGUMENT if says("revision in header is old") => unknown(&message),
        UNAUTHENTICATED => told(ErrorKind::Denied, &message),
        INVALID_ARGUMENT if says("authentication failed") || says("user name") => {
            told(ErrorKind::Denied, &message)
        }
        INVALID_ARGUMENT => told(ErrorKind::Internal, &message),
        FAILED_PRECONDITION if says("authentication is not enabled") => {
            told(ErrorKind::InvalidInput, "a user is named, but authentication is off")
        }
        FAILED_PRECONDITION if says("user name") => told(ErrorKind::Denied, &message),
        RESOURCE_EXHAUSTED if says("space") => told(
            ErrorKind::Unavailable,
            &format!("{message}; compact and defragment it, then disarm the alarm"),
        ),
        RESOURCE_EXHAUSTED => told(ErrorKind::Unavailable, &message),
        UNIMPLEMENTED => told(ErrorKind::Unsupported, &message),
        _ => broken(failed, &message),
    }
}

/// A failure below etcd: the connection, or what stands between.
fn broken(failed: &EtcdError, message: &str) -> Failure {
    let mut text = message.to_owned();
    let mut cause: Option<&dyn StdError> = match failed {
        EtcdError::GRpcStatus(status) => status.source(),
        EtcdError::TransportError(error) => error.source(),
        _ => None,
    };
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.ends_with(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    if text.contains("invalid peer certificate") {
        return told(ErrorKind::Denied, &text);
    }
    let connecting = ["tcp connect error", "dns error", "tcp open error"];
    let nature =
        if connecting.iter().any(|sign| text.contains(sign)) { Nature::NeverSent } else { Nature::Unknown };
    Failure { error: Error::new(ErrorKind::Unavailable, format!("etcd: {text}")), nature }
}

/// A connection that was not made in time.
pub(crate) fn unreachable(address: &str) -> Failure {
    let text = format!("etcd at {address} did not answer in time");
    Failure { error: Error::new(ErrorKind::Unavailable, text), nature: Nature::NeverSent }
}

/// The runtime that connections live on has shut down.
pub(crate) fn no_runtime() -> Failure {
    let error = Error::new(ErrorKind::NoRuntime, "the runtime of the etcd connection is gone");
    Failure { error, nature: Nature::Told }
}

/// An answer that none of our requests has.
pub(crate) fn unexpected() -> Failure {
    let text = "etcd gave an answer that was not understood";
    Failure { error: Error::new(ErrorKind::Unavailable, text), nature: Nature::Unknown }
}

/// Somebody has put something else under a claim's own key.
pub(crate) fn foreign(key: &str) -> Failure {
    told(ErrorKind::Foreign, &format!("the key {key:?} is not attached to its claim's lease any more"))
}

fn told(kind: ErrorKind, text: &str) -> Failure {
    Failure { error: Error::new(kind, format!("etcd: {text}")), nature: Nature::Told }
}

fn told_of(message: &str) -> Failure {
    told(ErrorKind::Unavailable, message)
}

fn unknown(message: &str) -> Failure {
    Failure { nature: Nature::Unknown, ..told_of(message) }
}
