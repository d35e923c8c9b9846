//! The exit codes, and what is said when one of the command's own is given.

use std::{error::Error, fmt::Write, io};

use polylock::ErrorKind;

pub(crate) const USAGE: u8 = 64;
pub(crate) const UNAVAILABLE: u8 = 69;
pub(crate) const INTERNAL: u8 = 70;
pub(crate) const BUSY: u8 = 75;
pub(crate) const TIMED_OUT: u8 = 76;
pub(crate) const LOST: u8 = 79;
pub(crate) const NOT_EXECUTABLE: u8 = 126;
pub(crate) const NOT_FOUND: u8 = 127;
const SIGNALLED: u8 = 128;

/// `polylock bench` runs no COMMAND whose codes it had to keep clear of: its own are everybody's.
#[cfg(feature = "bench")]
pub(crate) const BENCH_FAILURE: u8 = 1;
pub(crate) const BENCH_USAGE: u8 = 2;

/// Every code that is not COMMAND's own, for the help and the README.
///
/// 64, 69, 70 and 75 are those of sysexits.h; 76 and 79 are seldom used by others; 126 to 128+n are the
/// shells'.
pub(crate) const TABLE: &[(u8, &str)] = &[
    (USAGE, "usage: an argument, the name or the URL cannot be used"),
    (UNAVAILABLE, "the backend is down, refuses us or does not answer"),
    (INTERNAL, "something failed on this machine: no process or runtime could be made"),
    (BUSY, "busy: another holds the lock (--no-wait); -E sets another code"),
    (TIMED_OUT, "timed out: another still held it after --wait=DURATION; -E sets another code"),
    (LOST, "lost: the lock was lost, and COMMAND was stopped or may have run without it"),
    (NOT_EXECUTABLE, "COMMAND was found but cannot be executed"),
    (NOT_FOUND, "COMMAND was not found"),
    (SIGNALLED, "128+n: COMMAND was killed by signal n, or polylock was while it waited"),
];

/// The code that says "ended by this signal".
pub(crate) fn signalled(signal: i32) -> u8 {
    u8::try_from(signal).map_or(SIGNALLED, |signal| SIGNALLED.saturating_add(signal))
}

/// The table for `--help`.
pub(crate) fn help() -> String {
    let mut text = String::from("Exit codes of `polylock run` (otherwise it is COMMAND's):\n");
    for (code, meaning) in TABLE {
        let meaning = meaning.strip_prefix("128+n: ").unwrap_or(meaning);
        let code = if *code == SIGNALLED { "128+n".into() } else { code.to_string() };
        let _ = writeln!(text, "  {code:<6} {meaning}");
    }
    text
}

/// Why there is an exit code of our own, in a text that goes to stderr.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    text: String,
}

impl Failure {
    pub(crate) fn new(code: u8, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }

    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self::new(USAGE, text)
    }

    pub(crate) fn internal(what: &str, error: &io::Error) -> Self {
        Self::new(INTERNAL, format!("{what}: {error}"))
    }

    /// The same with another code.
    #[cfg(feature = "bench")]
    pub(crate) fn with_code(self, code: u8) -> Self {
        Self { code, ..self }
    }

    /// Tells the user, and gives the code.
    pub(crate) fn report(self) -> u8 {
        complain(&self.text);
        self.code
    }
}

impl From<polylock::Error> for Failure {
    fn from(error: polylock::Error) -> Self {
        let (code, advice) = match error.kind() {
            ErrorKind::InvalidInput | ErrorKind::Unmet | ErrorKind::Unsupported => (USAGE, ""),
            ErrorKind::Unavailable | ErrorKind::Timeout => (
                UNAVAILABLE,
                "\npolylock: is the server running, and is its URL right (--url, POLYLOCK_URL)?",
            ),
            ErrorKind::Denied | ErrorKind::Foreign | ErrorKind::TooManyWaiters => (UNAVAILABLE, ""),
            ErrorKind::Lost => (LOST, ""),
            _ => (INTERNAL, ""),
        };
        Self::new(code, chain(&error) + advice)
    }
}

/// Says something to the user; stdout is COMMAND's alone.
pub(crate) fn complain(text: &str) {
    // A closed stderr leaves nobody to tell.
    let _ = io::Write::write_fmt(&mut io::stderr().lock(), format_args!("polylock: {text}\n"));
}

/// An error and its causes, in one line.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let _ = write!(text, ": {cause}");
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_outcomes_share_a_code() {
        for (i, (code, _)) in TABLE.iter().enumerate() {
            assert!(TABLE[i + 1..].iter().all(|(other, _)| other != code), "{code}");
        }
        assert_eq!(signalled(15), 143);
    }

    #[test]
    fn the_readme_lists_every_code_as_the_help_does() {
        let readme = include_str!("../README.md");
        for (code, meaning) in TABLE {
            let meaning = meaning.strip_prefix("128+n: ").unwrap_or(meaning);
            let code = if *code == SIGNALLED { "128+n".into() } else { code.to_string() };
            let row = format!("| {code} | {meaning} |");
            assert!(readme.contains(&row), "README.md lacks the row\n{row}");
            assert!(help().contains(&format!("  {code:<6} {meaning}\n")), "{}", help());
        }
    }
}
