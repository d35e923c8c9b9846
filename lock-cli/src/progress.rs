//! What a waiting user sees.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// A spinner on stderr while the lock is waited for; invisible unless stderr is a terminal.
#[derive(Debug)]
pub(crate) struct Spinner(ProgressBar);

impl Spinner {
    /// Long enough for a free lock to be taken without a flicker.
    pub(crate) const DELAY: Duration = Duration::from_millis(300);

    pub(crate) fn start(name: &str) -> Self {
        let bar = ProgressBar::new_spinner().with_message(format!("waiting for {name:?}"));
        // The template is a constant; the default style would do as well.
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(120));
        Self(bar)
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
