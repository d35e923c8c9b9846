use std::{path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};

/// How a child is set up. All moments in these words are times since the boot clock's start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Setting {
    pub(crate) url: String,
    pub(crate) ttl: Duration,
}

/// One line to a child.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case")]
pub(crate) enum Order {
    /// Wait for the lock.
    Acquire { name: String },
    /// Say what the guard says.
    Look,
    /// Release the guard.
    Release,
    /// Add one to the number in the file, under the lock.
    Increment { name: String, file: PathBuf, times: u32 },
}

/// One line from a child: one for each order, and `Ready` before the first.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub(crate) enum Answer {
    Ready,
    Grip { held: bool, remaining: Duration, token: u64, at: Duration, new: bool },
    Released { called: Duration, was_held: bool },
    Done,
    Failed { error: String },
}
