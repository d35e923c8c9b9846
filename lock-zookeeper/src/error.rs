use lock_core::{Error, ErrorKind};
use zookeeper_client::Error as Refusal;

/// What a verb's failure means.
///
/// A lost connection has three faces in the driver: `ConnectionLoss`, `Custom` and `Timeout`; all of them
/// mean that the outcome is unknown, and so does everything else that is not named here.
pub(crate) fn from_driver(error: &Refusal) -> Error {
    let kind = match error {
        Refusal::NoAuth | Refusal::AuthFailed | Refusal::InvalidAcl => ErrorKind::Denied,
        Refusal::NoChildrenForEphemerals => ErrorKind::Foreign,
        Refusal::Unimplemented => ErrorKind::Unsupported,
        Refusal::BadArguments(_) => ErrorKind::InvalidInput,
        _ => ErrorKind::Unavailable,
    };
    let text = match error {
        Refusal::NoAuth => "zookeeper: this user may not do that; it needs all rights on the locks' nodes",
        Refusal::NoChildrenForEphemerals => {
            "zookeeper: the lock's node is ephemeral, so it is not one of polylock's"
        }
        Refusal::Unimplemented => "zookeeper: the server is older than 3.5",
        Refusal::Timeout => "zookeeper: no answer before the claim's lease was over",
        other => return Error::new(kind, format!("zookeeper: {other}")),
    };
    Error::new(kind, text)
}

/// Whether the session is over, so that another has to be asked.
pub(crate) fn is_end(error: &Refusal) -> bool {
    matches!(error, Refusal::SessionExpired | Refusal::SessionMoved | Refusal::ClientClosed)
}

/// Whether the server certainly did nothing.
pub(crate) fn is_refusal(error: &Refusal) -> bool {
    !matches!(from_driver(error).kind(), ErrorKind::Unavailable) || matches!(error, Refusal::QuotaExceeded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_retry_can_mend_is_permanent() {
        for (error, kind) in [
            (Refusal::NoAuth, ErrorKind::Denied),
            (Refusal::AuthFailed, ErrorKind::Denied),
            (Refusal::InvalidAcl, ErrorKind::Denied),
            (Refusal::NoChildrenForEphemerals, ErrorKind::Foreign),
            (Refusal::Unimplemented, ErrorKind::Unsupported),
        ] {
            let shown = from_driver(&error);
            assert_eq!((shown.kind(), shown.is_transient()), (kind, false), "{error}");
            assert!(is_refusal(&error), "{error}");
        }
    }

    #[test]
    fn a_lost_connection_is_an_unknown_outcome() {
        for error in [
            Refusal::ConnectionLoss,
            Refusal::Timeout,
            Refusal::NoHosts,
            Refusal::SessionExpired,
            Refusal::SessionMoved,
            Refusal::Throttled,
            Refusal::UnexpectedErrorCode(-122),
        ] {
            assert!(from_driver(&error).is_transient(), "{error}");
            assert!(!is_refusal(&error), "{error}");
        }
    }
}
