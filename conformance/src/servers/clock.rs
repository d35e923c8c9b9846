use std::{
    fs,
    io::{self, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Mutex, PoisonError},
};

/// A wall clock for one server process that can be moved; the machine's own is left alone.
///
/// A small library is put in front of the C library's clock. It is made with `cc`, which every machine
/// with a Rust toolchain has as its linker.
#[derive(Debug)]
pub(super) struct WallClock {
    library: PathBuf,
    offset: PathBuf,
    millis: i64,
}

impl WallClock {
    /// Makes the library in this directory.
    pub(super) fn new(directory: &Path) -> io::Result<Self> {
        let (library, offset) = (directory.join("clock.so"), directory.join("clock"));
        fs::write(&offset, 0_i64.to_ne_bytes())?;
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-x", "c", "-o"]).arg(&library).arg("-");
        let mut compiler = compiler.stdin(Stdio::piped()).spawn().map_err(|error| {
            io::Error::new(error.kind(), format!("cc, which moves a server's clock, does not start: {error}"))
        })?;
        if let Some(mut source) = compiler.stdin.take() {
            source.write_all(include_bytes!("clock.c"))?;
        }
        let status = compiler.wait()?;
        if !status.success() {
            return Err(io::Error::other(format!("cc made no library of clock.c: {status}")));
        }
        Ok(Self { library, offset, millis: 0 })
    }

    /// Puts a program under this clock.
    pub(super) fn rule(&self, command: &mut Command) {
        command.env("LD_PRELOAD", &self.library).env("SUITE_CLOCK", &self.offset);
    }

    /// Moves a server's clock; the first time, the server has to be restarted under one that can be moved.
    pub(super) fn step_of(
        slot: &Mutex<Option<Self>>,
        directory: &Path,
        seconds: i64,
        restart: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let mut clock = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(clock) = &mut *clock {
            return clock.step(seconds);
        }
        clock.insert(Self::new(directory)?).step(seconds)?;
        drop(clock);
        restart()
    }

    fn step(&mut self, seconds: i64) -> io::Result<()> {
        self.millis = self.millis.saturating_add(seconds.saturating_mul(1000));
        // In place: the server has the file mapped.
        fs::OpenOptions::new().write(true).open(&self.offset)?.write_all_at(&self.millis.to_ne_bytes(), 0)
    }
}
