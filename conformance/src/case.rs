use std::{error::Error, fmt, future::Future, panic::Location, pin::Pin};

use crate::{Need, Stage};

/// One behaviour that a backend must show.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    /// A sentence of behaviour, in snake case.
    pub(crate) name: &'static str,
    pub(crate) needs: &'static [Need],
    pub(crate) run: fn(Stage) -> Running,
}

/// The future of a case.
pub(crate) type Running = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// What a case returns: a failed assertion panics, an error that should not be is passed on by `?`.
pub(crate) type Outcome = Result<(), Failure>;

/// An error that a case did not expect, and the line that passed it on.
pub(crate) struct Failure {
    text: String,
    at: &'static Location<'static>,
}

impl Failure {
    /// A failure with a text of the case's own.
    #[track_caller]
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), at: Location::caller() }
    }

    /// The same, with what was found instead.
    pub(crate) fn but(mut self, found: &dyn fmt::Debug) -> Self {
        self.text = format!("{}, not {found:?}", self.text);
        self
    }
}

impl<E: Into<Box<dyn Error + Send + Sync>>> From<E> for Failure {
    #[track_caller]
    fn from(error: E) -> Self {
        let error = error.into();
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            text = format!("{text}: {error}");
            cause = error.source();
        }
        Self { text, at: Location::caller() }
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (at {})", self.text, self.at)
    }
}

/// A case from an `async fn(Stage) -> Outcome` and its needs: `case!(name)`, `case!(name, Need::Wire)`.
macro_rules! case {
    ($run:ident $(, $need:expr)* $(,)?) => {
        $crate::case::Case {
            name: stringify!($run),
            needs: &[$($need),*],
            run: |stage| Box::pin($run(stage)),
        }
    };
}
pub(crate) use case;
