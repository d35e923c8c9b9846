use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use lock_bench::Progress;

/// A bar on stderr for the workload that is under way; invisible unless stderr is a terminal.
pub(super) struct Bar(ProgressBar);

impl Bar {
    pub(super) fn new() -> Self {
        let bar = ProgressBar::no_length();
        // The template is a constant; the default style would do as well.
        if let Ok(style) =
            ProgressStyle::with_template("{spinner} {prefix} [{bar:20}] {pos}/{len} {msg} {elapsed}")
        {
            bar.set_style(style.progress_chars("=> "));
        }
        // Seldom: what draws it is measured, too.
        bar.enable_steady_tick(Duration::from_millis(500));
        Self(bar)
    }
}

impl Progress for Bar {
    fn begin(&self, what: &str, steps: u64) {
        self.0.set_prefix(what.to_owned());
        self.0.set_message("");
        self.0.set_length(steps);
        self.0.set_position(0);
    }

    fn step(&self, what: &str) {
        self.0.set_message(what.to_owned());
        self.0.inc(1);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
