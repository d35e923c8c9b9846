//! The step between us and COMMAND: asks the kernel to kill it when we die, and becomes it.

use std::{
    ffi::{OsStr, OsString},
    io,
    os::unix::process::CommandExt,
    process::Command,
};

use rustix::process::{Pid, Signal, getppid};

use crate::exit;

pub(super) const ARGUMENT: &str = "__shim";

/// The command that starts COMMAND as a child of `parent`, which is killed when `parent` is.
pub(super) fn command(parent: Pid, command: &[OsString]) -> Command {
    let mut shim = super::this_binary();
    shim.arg(ARGUMENT).arg(parent.as_raw_nonzero().to_string()).args(command);
    shim
}

/// What the shim does: `__shim PARENT COMMAND…`. Returns only if COMMAND cannot be executed.
pub(super) fn become_command(mut args: impl Iterator<Item = OsString>) -> u8 {
    let parent = args.next();
    let Some(program) = args.next() else { return exit::USAGE };
    if let Err(error) = die_with(parent.as_deref()) {
        exit::complain(&format!("COMMAND is not started: {error}"));
        return exit::INTERNAL;
    }
    // `exec` also resets the signal mask, and SIGPIPE, which Rust ignores.
    let error = Command::new(&program).args(args).exec();
    exit::complain(&format!("{}: {error}", program.display()));
    if error.kind() == io::ErrorKind::NotFound { exit::NOT_FOUND } else { exit::NOT_EXECUTABLE }
}

/// The death signal outlives `exec`, unless the executed file changes the user or has capabilities.
fn die_with(parent: Option<&OsStr>) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // It is sent from now on only: the parent may have died before.
    let now = getppid().map(|pid| pid.as_raw_nonzero().to_string());
    match now.as_deref().map(OsStr::new) == parent {
        true => Ok(()),
        false => Err(io::Error::other("polylock is gone")),
    }
}
