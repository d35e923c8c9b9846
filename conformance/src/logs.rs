//! What is logged: for people who look, and for tests that look for secrets.

use std::{
    io::{self, Write},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use tracing::{level_filters::LevelFilter, subscriber::DefaultGuard};
use tracing_subscriber::{EnvFilter, Layer, filter::dynamic_filter_fn, fmt, prelude::*};

/// Sets the log up: `POLYLOCK_LOG=debug` shows it, and cases can read it.
pub(crate) fn start() {
    let shown = EnvFilter::try_from_env("POLYLOCK_LOG").unwrap_or_else(|_| EnvFilter::new("off"));
    let shown = fmt::layer().with_writer(io::stderr).with_filter(shown);
    let captured = dynamic_filter_fn(|_, _| READERS.load(Ordering::Relaxed) > 0);
    let captured = fmt::layer().with_ansi(false).with_writer(|| Pages).with_filter(captured);
    // A second start, in a test of the harness itself, changes nothing.
    let _ = tracing_subscriber::registry().with(shown).with(captured).try_init();
}

/// Everything that is logged, at every level and by every case, while the value lives.
#[derive(Debug)]
pub(crate) struct Capture(());

impl Capture {
    pub(crate) fn new() -> Self {
        READERS.fetch_add(1, Ordering::Relaxed);
        Self(())
    }

    /// What was logged so far.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&LOG.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        READERS.fetch_sub(1, Ordering::Relaxed);
    }
}

// A log has one subscriber for a process.
static READERS: AtomicUsize = AtomicUsize::new(0);
static LOG: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct Pages;

impl Write for Pages {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LOG.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Everything that was logged, at every level, by any crate, on the thread of a test that a backend has beside the
/// suite.
#[derive(Clone, Debug, Default)]
pub struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// For as long as the guard lives.
    #[must_use]
    pub fn start() -> (Self, DefaultGuard) {
        let log = Self::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(LevelFilter::TRACE)
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        (log, tracing::subscriber::set_default(subscriber))
    }

    /// What was logged so far.
    ///
    /// # Panics
    ///
    /// If it is not UTF-8.
    #[must_use]
    pub fn text(&self) -> String {
        let bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        String::from_utf8(bytes).expect("the log is UTF-8")
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
