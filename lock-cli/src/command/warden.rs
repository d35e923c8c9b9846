//! The leader of COMMAND's process group: kills all of it when `polylock run` is gone.
//!
//! The kernel's death signal reaches COMMAND alone. Where COMMAND is a script, what it had just started
//! would go on unguarded. The warden reads a pipe that only `polylock run` can write to; its end means
//! that `polylock run` died. That the warden lives, or is not reaped yet, also keeps the group's id from
//! being used again for another group.

use std::{
    io::{self, Read, Write},
    os::unix::process::CommandExt,
    process::{Child, ChildStdin, Stdio},
};

use nix::sys::signal::SigSet;
use rustix::process::{Pid, Signal, kill_current_process_group};

use crate::exit;

pub(super) const ARGUMENT: &str = "__warden";

/// The running warden. Dropping it ends it, and leaves the rest of the group alone.
#[derive(Debug)]
pub(super) struct Warden {
    process: Child,
    /// Its end tells the warden that we are gone.
    _lifeline: Option<ChildStdin>,
}

impl Warden {
    /// Starts the warden as the leader of a new process group, and waits until no signal but KILL and
    /// STOP can touch it.
    pub(super) fn start() -> io::Result<Self> {
        let mut command = super::this_binary();
        // It holds nothing of ours: no directory, no terminal, no secret.
        command.arg(ARGUMENT).env_clear().current_dir("/").process_group(0);
        let mut process =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let ready = process.stdout.take();
        let warden = Self { _lifeline: process.stdin.take(), process };
        if let Some(mut ready) = ready {
            ready.read_exact(&mut [0])?;
        }
        Ok(warden)
    }

    /// The group that it leads.
    pub(super) fn group(&self) -> Pid {
        Pid::from_child(&self.process)
    }
}

impl Drop for Warden {
    fn drop(&mut self) {
        // It may have been killed along with the group; it is reaped in any case.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What the warden does.
pub(super) fn watch() -> u8 {
    if SigSet::all().thread_block().is_err() || io::stdout().write_all(b"!").is_err() {
        return exit::INTERNAL;
    }
    // `print` would keep it for the end of a line.
    if io::stdout().flush().is_err() {
        return exit::INTERNAL;
    }
    // Nothing is ever written: this ends when the other end is closed, and that is when polylock is gone.
    let _ = io::stdin().read(&mut [0]);
    let _ = kill_current_process_group(Signal::KILL);
    exit::INTERNAL
}
