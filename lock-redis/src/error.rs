use std::io;

use lock_core::{Address, Error, ErrorKind};
use redis::RedisError;

/// What a verb's failure means. The text is the server's own; the driver's error is not kept as the
/// cause, since it would say the same once more.
pub(crate) fn from_redis(error: &RedisError) -> Error {
    let kind = kind(error);
    let text = text(error);
    match kind {
        ErrorKind::Unavailable if code(error) == "OOM" => Error::new(
            kind,
            format!("redis is out of memory; give the locks a server of their own or more memory: {text}"),
        ),
        ErrorKind::Unsupported if is_cluster(error) => Error::new(kind, format!("{CLUSTER}: {text}")),
        _ => Error::new(kind, format!("redis: {text}")),
    }
}

/// Like [`from_redis`], for what happens before the server knows us: an old server repeats a command it
/// does not know with its arguments, and so the password.
pub(crate) fn while_dialing(error: &RedisError, password: Option<&str>) -> Error {
    let shown = from_redis(error);
    if password.is_some_and(|password| shown.to_string().contains(password)) {
        return Error::new(shown.kind(), format!("redis refused with {}", code(error)));
    }
    shown
}

/// A socket that cannot be opened.
pub(crate) fn unreachable(address: &Address, error: io::Error) -> Error {
    let untrusted = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
    if matches!(untrusted, Some(rustls::Error::InvalidCertificate(_))) {
        let text = format!("the certificate of redis at {address} is not trusted");
        return Error::new(ErrorKind::Denied, text).with_source(error);
    }
    Error::new(ErrorKind::Unavailable, format!("redis at {address} cannot be reached")).with_source(error)
}

/// The key holds something that no lock of ours wrote.
pub(crate) fn foreign(key: &str, what: &str) -> Error {
    Error::new(ErrorKind::Foreign, format!("redis: the key {key:?} {what}"))
}

/// An answer that none of our scripts gives.
pub(crate) fn unexpected() -> Error {
    Error::new(ErrorKind::Unavailable, "redis gave an answer that was not understood")
}

pub(crate) const CLUSTER: &str = "this is a node of a Redis Cluster, which is not supported";

/// The first word of a server's error, or what stands for it.
pub(crate) fn code(error: &RedisError) -> &str {
    let code = error.code().unwrap_or_default();
    if code != "ERR" {
        return code;
    }
    // Up to version 6 a script's failure is an ERR that quotes the command's own error.
    const QUOTED: [&str; 4] = ["OOM", "READONLY", "WRONGTYPE", "NOPERM"];
    let detail = error.detail().unwrap_or_default();
    QUOTED.into_iter().find(|code| detail.contains(&format!("-{code} "))).unwrap_or("ERR")
}

fn kind(error: &RedisError) -> ErrorKind {
    let detail = error.detail().unwrap_or_default();
    match (error.kind(), code(error)) {
        (redis::ErrorKind::AuthenticationFailed, _) => ErrorKind::Denied,
        (redis::ErrorKind::InvalidClientConfig, _) => ErrorKind::InvalidInput,
        (_, "WRONGPASS" | "NOAUTH" | "NOPERM" | "DENIED") => ErrorKind::Denied,
        (_, "WRONGTYPE" | "FOREIGN") => ErrorKind::Foreign,
        (_, "ERR") if detail.contains("The user executing the script can't") => ErrorKind::Denied,
        (_, "ERR") if detail.contains("DB index") => ErrorKind::InvalidInput,
        (redis::ErrorKind::RESP3NotSupported, _) => ErrorKind::Unsupported,
        (_, "ERR") if detail.contains("unknown command") => ErrorKind::Unsupported,
        _ if is_cluster(error) => ErrorKind::Unsupported,
        _ => ErrorKind::Unavailable,
    }
}

fn is_cluster(error: &RedisError) -> bool {
    matches!(code(error), "MOVED" | "ASK" | "CROSSSLOT" | "CLUSTERDOWN")
}

fn text(error: &RedisError) -> String {
    match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use redis::make_extension_error;

    use super::*;

    fn server(code: &str, detail: &str) -> RedisError {
        make_extension_error(code.into(), Some(detail.into()))
    }

    #[test]
    fn what_no_retry_can_mend_is_permanent() {
        for (code, kind) in [
            ("WRONGPASS", ErrorKind::Denied),
            ("NOAUTH", ErrorKind::Denied),
            ("NOPERM", ErrorKind::Denied),
            ("WRONGTYPE", ErrorKind::Foreign),
            ("FOREIGN", ErrorKind::Foreign),
            ("MOVED", ErrorKind::Unsupported),
        ] {
            let error = from_redis(&server(code, "text"));
            assert_eq!((error.kind(), error.is_transient()), (kind, false), "{code}");
        }
        for code in ["OOM", "READONLY", "LOADING", "MASTERDOWN", "MISCONF", "BUSY"] {
            assert!(from_redis(&server(code, "text")).is_transient(), "{code}");
        }
    }

    #[test]
    fn an_error_quoted_by_an_older_servers_script_is_understood() {
        let quoted = "Error running script (call to f_0): @user_script:3: -OOM command not allowed";
        let error = server("ERR", quoted);
        assert_eq!(code(&error), "OOM");
    }

    #[test]
    fn a_server_that_repeats_the_password_is_not_quoted() {
        let error = server("ERR", "unknown command 'AUTH', with args beginning with: 's3cr3t'");
        let shown = while_dialing(&error, Some("s3cr3t"));
        assert!(!format!("{shown} {shown:?}").contains("s3cr3t"), "{shown:?}");
        assert_eq!(shown.kind(), ErrorKind::Unsupported);
    }
}
