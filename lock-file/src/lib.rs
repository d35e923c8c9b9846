#![doc = include_str!("../README.md")]

#[cfg(target_os = "linux")]
mod backend;
mod encode;
mod options;

#[cfg(target_os = "linux")]
mod blocker;
#[cfg(target_os = "linux")]
mod directory;
#[cfg(target_os = "linux")]
mod error;
#[cfg(target_os = "linux")]
mod file_system;
#[cfg(target_os = "linux")]
mod liveness;
#[cfg(target_os = "linux")]
mod state;
#[cfg(target_os = "linux")]
mod state_file;
#[cfg(target_os = "linux")]
mod store;
#[cfg(target_os = "linux")]
mod watch;

use lock_core::{Connecting, Driver, Fault, Faults, Guarantees, Name, Result, Scope, Takeover, Url, Wakeup};

#[cfg(target_os = "linux")]
pub use backend::FileBackend;
pub use options::FileOptions;

/// Makes `file:///var/lib/locks` a backend.
pub const DRIVER: Driver =
    Driver { name: "file", schemes: &["file"], example: "file:///var/lib/locks", guarantees, connect, key };

/// What holds in every directory that is accepted. One that outlives a reboot promises more.
const fn guarantees() -> Guarantees {
    let lasting = Faults::of(&[Fault::HolderCrash, Fault::HolderPause, Fault::ServerClockStep]);
    let mut guarantees = Guarantees::nothing("file", Scope::Machine);
    guarantees.exclusion = lasting.with(Fault::ServerRestart);
    guarantees.fencing = lasting;
    guarantees.takeover = Takeover::AtOnce;
    guarantees.wakeup = Wakeup::Push;
    guarantees
}

#[cfg(target_os = "linux")]
fn connect(url: Url) -> Connecting {
    Box::pin(async move {
        let backend = FileBackend::connect(FileOptions::from_url(url)?).await?;
        Ok(Box::new(backend) as Box<dyn lock_core::Backend>)
    })
}

#[cfg(not(target_os = "linux"))]
fn connect(_url: Url) -> Connecting {
    use lock_core::{Error, ErrorKind};

    let text = "locks in a directory need Linux: its boot clock, boot id and file notifications";
    Box::pin(async move { Err(Error::new(ErrorKind::Unsupported, text)) })
}

fn key(url: &Url, name: &Name) -> Result<String> {
    let path = options::path(url)?.join(encode::file_name(name));
    Ok(path.to_string_lossy().into_owned())
}
