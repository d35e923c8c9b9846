use lock_core::{Error, ErrorKind};
use sqlx::mysql::MySqlDatabaseError;

/// What went wrong in a step: the server's or the driver's word, or already ours.
#[derive(Debug)]
pub(crate) enum Failure {
    Sql(sqlx::Error),
    Told(Error),
}

impl Failure {
    /// The server's error number.
    pub(crate) fn number(&self) -> Option<u16> {
        match self {
            Self::Sql(error) => number(error),
            Self::Told(_) => None,
        }
    }

    /// Whether the connection broke, and not the statement alone.
    pub(crate) fn is_broken(&self) -> bool {
        matches!(self, Self::Sql(error) if number(error).is_none_or(closes))
    }

    /// Whether the server has undone the whole transaction because of another one, so that it may be tried
    /// again: a deadlock (on Galera, a failed certification), or a row that changed under a snapshot.
    pub(crate) fn is_conflict(&self) -> bool {
        matches!(self.number(), Some(1213 | 1020))
    }

    /// Whether the statement alone was ended: by `KILL QUERY`, or by the server's limit for its time.
    pub(crate) fn is_interruption(&self) -> bool {
        matches!(self.number(), Some(1317 | 1969 | 3024))
    }

    /// Whether a `KILL QUERY` was for a connection that is not there.
    pub(crate) fn is_nobody(&self) -> bool {
        self.number() == Some(1094)
    }

    /// Whether the table is not there.
    pub(crate) fn is_missing_table(&self) -> bool {
        self.number() == Some(1146)
    }
}

impl From<sqlx::Error> for Failure {
    fn from(error: sqlx::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Told(error)
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Sql(error) => from_sqlx(error),
            Failure::Told(error) => error,
        }
    }
}

/// What a failure means. The text of a server's error is the server's own.
pub(crate) fn from_sqlx(error: sqlx::Error) -> Error {
    if let sqlx::Error::Database(refused) = &error {
        let number = number(&error).unwrap_or(0);
        let hint = hint(number);
        return Error::new(kind(number), format!("mysql: {} (error {number}){hint}", refused.message()));
    }
    match error {
        sqlx::Error::Io(cause) => {
            let untrusted = cause.get_ref().is_some_and(|cause| is_untrusted(&cause.to_string()));
            let kind = if untrusted { ErrorKind::Denied } else { ErrorKind::Unavailable };
            Error::new(kind, "the connection to mysql failed").with_source(cause)
        }
        sqlx::Error::Tls(cause) => {
            let text = cause.to_string();
            // Everything else about TLS is a matter of how client and server are set up, too.
            Error::new(ErrorKind::Denied, format!("mysql and we do not agree on TLS: {text}"))
        }
        sqlx::Error::Configuration(cause) => Error::invalid_input(format!("mysql: {cause}")),
        other => Error::new(ErrorKind::Unavailable, format!("mysql: {other}")),
    }
}

/// The same, before the server knows us.
pub(crate) fn while_dialing(address: &str, error: Error, password: Option<&str>) -> Error {
    let shown = format!("{error} {error:?}");
    if password.is_some_and(|password| !password.is_empty() && shown.contains(password)) {
        return Error::new(error.kind(), format!("mysql at {address} refused us"));
    }
    Error::new(error.kind(), format!("mysql at {address} cannot be used")).with_source(error)
}

/// An answer that none of our statements gives.
pub(crate) fn unexpected() -> Error {
    Error::new(ErrorKind::Unavailable, "mysql gave an answer that was not understood")
}

fn number(error: &sqlx::Error) -> Option<u16> {
    let refused = error.as_database_error()?.try_downcast_ref::<MySqlDatabaseError>()?;
    Some(refused.number())
}

/// Shut down, killed, told to go for idleness.
fn closes(number: u16) -> bool {
    matches!(number, 1053 | 1077 | 1079 | 1080 | 1152 | 1153 | 1158..=1161 | 1184 | 1927 | 3169 | 4031)
}

fn is_untrusted(text: &str) -> bool {
    text.contains("certificate")
}

fn kind(number: u16) -> ErrorKind {
    match number {
        // Not this user, not this password, not from here, not this table.
        1044 | 1045 | 1095 | 1130 | 1142 | 1143 | 1227 | 1251 | 1370 | 1396 | 1410 | 1524 | 1698 | 1820
        | 1862 | 3118 | 3159 | 3955 | 4151 => ErrorKind::Denied,
        1049 => ErrorKind::InvalidInput,
        // A column that is missing, of another type, or a view.
        1054 | 1136 | 1264 | 1265 | 1288 | 1347 | 1364 | 1366 | 1406 => ErrorKind::Foreign,
        1235 | 1286 | 1665 | 4707 => ErrorKind::Unsupported,
        // Read-only, full, stopped, overloaded, locked, and what we do not know.
        _ => ErrorKind::Unavailable,
    }
}

fn hint(number: u16) -> &'static str {
    match number {
        1040 | 1203 | 1226 => "; give the locks' user more connections, or the URL a smaller `connections`",
        1054 | 1136 | 1264 | 1265 | 1288 | 1347 | 1364 | 1366 | 1406 => {
            "; the table is not one that this library made: name another with `table`"
        }
        1205 => "; another transaction has locked the row",
        1290 | 1792 | 1836 | 3100 => "; the server is read-only: name the primary",
        1665 => "; set binlog_format to ROW or MIXED",
        3159 => "; add tls=verify or tls=encrypt to the URL",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_retry_can_mend_is_permanent_and_the_rest_is_not() {
        for number in [1044, 1045, 1142, 1227, 1698, 1049, 1054, 1665] {
            assert!(!Error::new(kind(number), "").is_transient(), "{number}");
        }
        for number in [1040, 1053, 1205, 1213, 1290, 1317, 1792, 1836, 1927, 1969, 3024, 4031, 9999] {
            assert!(Error::new(kind(number), "").is_transient(), "{number}");
        }
    }

    #[test]
    fn a_server_that_repeats_the_password_is_not_quoted() {
        let error = Error::new(ErrorKind::Denied, "no s3cr3t here");
        let shown = while_dialing("h:3306", error, Some("s3cr3t"));
        assert!(!format!("{shown} {shown:?}").contains("s3cr3t"));
        assert_eq!(shown.kind(), ErrorKind::Denied);
    }
}
