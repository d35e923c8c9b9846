use std::{error::Error, fmt};

/// Why something could not be measured, in one line.
#[derive(Clone, Debug)]
pub struct Failure(String);

/// What can fail here.
pub(crate) type Result<T = ()> = std::result::Result<T, Failure>;

impl Failure {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text; no secret is in it once [`Place::scrub`](crate::place::Place::scrub) has seen it.
    pub(crate) fn text(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

// It is no `Error` itself, so that every error can become one with its causes.
impl<E: Error> From<E> for Failure {
    fn from(error: E) -> Self {
        let mut text = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            let cause_text = cause.to_string();
            // Some errors print their cause themselves.
            if !text.contains(&cause_text) {
                text = format!("{text}: {cause_text}");
            }
            source = cause.source();
        }
        Self(text.replace('\n', " "))
    }
}
