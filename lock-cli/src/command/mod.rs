//! COMMAND as a process group: started so that it dies with us, signalled as one, ended in time.
//!
//! Three processes take part. `polylock run` spawns the [warden](warden), which leads COMMAND's process
//! group and kills it when `polylock run` is gone; and the [shim](shim), which joins that group, asks the
//! kernel for a death signal and then becomes COMMAND. Both are this binary, executed anew.

mod group;
mod procfs;
mod shim;
mod signals;
mod terminal;
mod warden;

use std::{
    ffi::OsString,
    process::{self, Stdio},
};

pub(crate) use group::{Change, Group};
pub(crate) use signals::{Signals, is_ending};
pub(crate) use terminal::{Stop, Terminal};

/// Acts as one of the helpers, if the arguments say so.
pub(crate) fn reexecuted(mut args: impl Iterator<Item = OsString>) -> Option<u8> {
    match args.next()?.to_str()? {
        shim::ARGUMENT => Some(shim::become_command(args)),
        warden::ARGUMENT => Some(warden::watch()),
        _ => None,
    }
}

/// This binary, whatever became of its path since it was started.
fn this_binary() -> process::Command {
    let path = if cfg!(target_os = "linux") { Ok("/proc/self/exe".into()) } else { std::env::current_exe() };
    let mut command = process::Command::new(path.unwrap_or_else(|_| "polylock".into()));
    std::os::unix::process::CommandExt::arg0(&mut command, "polylock");
    command.stdin(Stdio::inherit());
    command
}
