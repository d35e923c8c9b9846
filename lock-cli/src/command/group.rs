//! The process group of COMMAND.

use std::{ffi::OsString, io, os::unix::process::CommandExt, process::Command};

use rustix::{
    io::Errno,
    process::{
        Pid, Signal, WaitOptions, WaitStatus, getpgid, getpid, kill_process, kill_process_group, waitpid,
    },
};
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

use super::{procfs, shim, warden::Warden};
use crate::exit;

/// A process group made ready for COMMAND, and later COMMAND in it.
#[derive(Debug)]
pub(crate) struct Group {
    warden: Warden,
    children: Stream,
    command: Option<Pid>,
}

/// What became of COMMAND.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// It ended, which makes this exit code.
    Ended(u8),
    /// It was stopped by a signal.
    Stopped(Signal),
}

impl Group {
    /// Starts the group, still without COMMAND.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { children: signal(SignalKind::child())?, warden: Warden::start()?, command: None })
    }

    /// The group's id.
    pub(crate) fn id(&self) -> Pid {
        self.warden.group()
    }

    /// Starts COMMAND in the group. `prepare` sets its environment.
    ///
    /// To be called on the main thread: a death signal is sent when the *thread* that spawned ends.
    pub(crate) fn start(
        &mut self,
        command: &[OsString],
        prepare: impl FnOnce(&mut Command),
    ) -> io::Result<()> {
        let mut shim = shim::command(getpid(), command);
        prepare(&mut shim);
        let child = shim.process_group(self.id().as_raw_nonzero().get()).spawn()?;
        self.command = Some(Pid::from_child(&child));
        Ok(())
    }

    /// Waits until COMMAND ends or is stopped. Never returns for a group without COMMAND.
    ///
    /// # Cancel safety
    ///
    /// No change is lost.
    pub(crate) async fn changed(&mut self) -> io::Result<Change> {
        loop {
            if let Some(change) = self.look()? {
                return Ok(change);
            }
            self.children.recv().await;
        }
    }

    /// Sends a signal to all of the group, and to COMMAND if it left the group.
    pub(crate) fn signal(&self, signal: Signal) {
        // Whoever is gone needs no signal.
        let _ = kill_process_group(self.id(), signal);
        let Some(command) = self.command else { return };
        match getpgid(Some(command)) {
            Ok(group) if group == self.id() => {}
            Ok(own) if own == command => drop(kill_process_group(command, signal)),
            _ => drop(kill_process(command, signal)),
        }
    }

    /// Whether anything but the warden is left of the group.
    pub(crate) fn is_empty(&self) -> bool {
        self.command.is_none() && procfs::has_followers(self.id()) == Some(false)
    }

    fn look(&mut self) -> io::Result<Option<Change>> {
        let Some(command) = self.command else { return Ok(None) };
        let status = match waitpid(Some(command), WaitOptions::NOHANG | WaitOptions::UNTRACED) {
            Ok(None) | Err(Errno::INTR) => return Ok(None),
            Ok(Some((_, status))) => status,
            Err(error) => return Err(error.into()),
        };
        if let Some(signal) = status.stopping_signal().and_then(Signal::from_named_raw) {
            return Ok(Some(Change::Stopped(signal)));
        }
        let ended = code(status);
        if ended.is_some() {
            self.command = None;
        }
        Ok(ended.map(Change::Ended))
    }
}

fn code(status: WaitStatus) -> Option<u8> {
    let exited = status.exit_status().map(|code| u8::try_from(code).unwrap_or(u8::MAX));
    exited.or_else(|| status.terminating_signal().map(exit::signalled))
}
