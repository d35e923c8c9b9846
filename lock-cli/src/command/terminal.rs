//! The terminal, as far as job control goes: lent to COMMAND's group, taken back, and Ctrl-Z.
//!
//! COMMAND is in a process group of its own, so it would be stopped when it reads the terminal or changes
//! its modes. So the terminal is lent to its group: before it starts, if standard input and output are
//! both the terminal; else only when COMMAND was stopped for want of it, because another member of our
//! pipeline (`polylock run … | less`) may need it itself.

use std::{
    fs::File,
    io::{self, IsTerminal},
};

use nix::sys::signal::{SigSet, Signal as Blocked};
use rustix::{
    process::{Pid, Signal, getppid, kill_current_process_group},
    termios::{tcgetpgrp, tcsetpgrp},
};

use super::procfs::{self, Stat};

/// The controlling terminal, if there is one.
#[derive(Debug)]
pub(crate) struct Terminal {
    device: Option<File>,
    lent: bool,
    lend_again: bool,
}

/// What to do with a stopped COMMAND.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    Continue,
    Leave,
}

impl Terminal {
    pub(crate) fn open() -> Self {
        Self { device: File::open("/dev/tty").ok(), lent: false, lend_again: false }
    }

    /// Lends it to a group that is about to start, unless others may need it.
    pub(crate) fn lend_at_start(&mut self, group: Pid) {
        if io::stdin().is_terminal() && io::stdout().is_terminal() {
            self.lend(group);
        }
    }

    /// Decides about a COMMAND that was stopped.
    ///
    /// One that wants the terminal gets it. Otherwise we stop too, with all of our job, so that the shell
    /// sees it and the user can continue it. While we are stopped nothing renews the lock.
    pub(crate) fn stopped(&mut self, signal: Signal, group: Pid) -> Stop {
        let wants_it = signal == Signal::TTIN || signal == Signal::TTOU;
        if wants_it && self.lend(group) {
            return Stop::Continue;
        }
        if self.device.is_none() {
            return Stop::Leave;
        }
        if !is_controlled() {
            // Nobody could continue us. The kernel ignores Ctrl-Z in such a place.
            return if signal == Signal::TSTP { Stop::Continue } else { Stop::Leave };
        }
        self.lend_again = self.lent || wants_it;
        self.take_back();
        // Not TSTP, which we would pass on.
        let _ = kill_current_process_group(Signal::STOP);
        Stop::Leave
    }

    /// To be called when we were continued, before COMMAND is.
    pub(crate) fn resumed(&mut self, group: Pid) {
        if std::mem::take(&mut self.lend_again) {
            self.lend(group);
        }
    }

    /// Takes the terminal back.
    pub(crate) fn take_back(&mut self) {
        if let Some(device) = &self.device
            && self.lent
            && let Some(own) = procfs::own_group()
        {
            let _ = set_foreground(device, own);
        }
        self.lent = false;
    }

    /// Lends it if it is ours to lend: not if we run in the background. A shell that gives it to us late,
    /// after we have lent it, makes it ours again.
    fn lend(&mut self, group: Pid) -> bool {
        let (Some(device), Some(own)) = (&self.device, procfs::own_group()) else { return false };
        let lent = tcgetpgrp(device) == Ok(own) && set_foreground(device, group).is_ok();
        self.lent |= lent;
        lent
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.take_back();
    }
}

/// Also from the background, where the kernel stops a caller that does not block TTOU.
fn set_foreground(device: &File, group: Pid) -> io::Result<()> {
    let mut blocked = SigSet::empty();
    blocked.add(Blocked::SIGTTOU);
    let before = blocked.thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_BLOCK)?;
    let result = tcsetpgrp(device, group);
    before.thread_set_mask()?;
    Ok(result?)
}

/// Whether there is somebody to continue our process group when it is stopped: a shell with job control,
/// which is in our session but not in our group.
fn is_controlled() -> bool {
    let (group, session) = (procfs::own_group(), procfs::own_session());
    let mut ancestor = getppid();
    while let Some(stat) = ancestor.and_then(Stat::of) {
        if stat.session != session {
            return false;
        }
        if stat.group != group {
            return true;
        }
        ancestor = stat.parent;
    }
    false
}
