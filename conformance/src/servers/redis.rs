use std::{
    fs::{self, File},
    io,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::PathBuf,
    process::{Child, Stdio},
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use rustix::process::Signal;

use super::{Scratch, clock::WallClock, resp, scratch};
use crate::{
    Lever, Need, Server,
    process::{guarded, kill, signal, spawn},
};

/// A `redis-server` process on a free port of this machine, its data in memory.
#[derive(Debug)]
pub struct Redis {
    address: SocketAddr,
    options: Vec<String>,
    /// The log, the data in a folder of their own, and what moves the clock.
    root: Scratch,
    process: Mutex<Option<Child>>,
    clock: Mutex<Option<WallClock>>,
}

impl Redis {
    /// What a fixture with this server can offer.
    pub const OFFERS: &'static [Need] = &[
        Need::Wire,
        Need::ServerProcess,
        Need::DeleteRecord,
        Need::LoseData,
        Need::KillClients,
        Need::StepClock,
        Need::Commands,
    ];

    /// The most durable configuration: no acknowledged write is lost by a crash, and nothing evicted.
    pub const DURABLE: &'static [&'static str] =
        &["--appendonly", "yes", "--appendfsync", "always", "--maxmemory-policy", "noeviction"];

    /// Settings that forget: a restart loses everything, and full memory any key.
    pub const VOLATILE: &'static [&'static str] =
        &["--save", "", "--appendonly", "no", "--maxmemory-policy", "allkeys-lru"];

    /// Starts `redis-server` with these options and waits until it answers.
    ///
    /// # Errors
    ///
    /// If it cannot be started, with the end of its log.
    pub fn start(options: &[&str]) -> io::Result<Self> {
        let options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
        loop {
            let address = free_address()?;
            let server = Self {
                address,
                options: options.clone(),
                root: scratch()?,
                process: Mutex::default(),
                clock: Mutex::default(),
            };
            match server.run() {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                result => return result.map(|()| server),
            }
        }
    }

    fn run(&self) -> io::Result<()> {
        let log = self.root.path().join("log");
        let port = self.address.port().to_string();
        let data = self.data();
        fs::create_dir_all(&data)?;
        let mut command = guarded("redis-server")?;
        if let Some(clock) = &*self.clock.lock().unwrap_or_else(PoisonError::into_inner) {
            clock.rule(&mut command);
        }
        command.args(["--port", &port, "--bind", "127.0.0.1", "--save", "", "--dir"]).arg(data);
        command.args(["--enable-debug-command", "local", "--repl-diskless-sync-delay", "0"]);
        command.args(&self.options);
        let output = File::create(&log)?;
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let mut child = spawn(command)?;

        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            if let Some(status) = child.try_wait()? {
                let log = fs::read_to_string(&log)?;
                if log.contains("Address already in use") {
                    return Err(io::ErrorKind::AddrInUse.into());
                }
                let hint =
                    if status.code() == Some(127) { "; install redis-server (7.0 or later)" } else { "" };
                return Err(io::Error::other(format!(
                    "redis-server ended with {status}{hint}\n{}",
                    tail(&log)
                )));
            }
            if resp::command(self.address, Duration::from_secs(1), &["PING"]).is_ok() {
                break;
            }
            if Instant::now() > deadline {
                kill(&mut child)?;
                let log = fs::read_to_string(&log)?;
                return Err(io::Error::other(format!("redis-server does not answer\n{}", tail(&log))));
            }
            thread::sleep(Duration::from_millis(2));
        }
        *self.process.lock().unwrap_or_else(PoisonError::into_inner) = Some(child);
        Ok(())
    }

    fn signal(&self, which: Signal) -> io::Result<()> {
        let process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        signal(process.as_ref().ok_or_else(|| io::Error::other("redis-server is not running"))?, which)
    }

    fn kill(&self) -> io::Result<()> {
        let process = self.process.lock().unwrap_or_else(PoisonError::into_inner).take();
        process.map_or(Ok(()), |mut child| kill(&mut child))
    }

    fn data(&self) -> PathBuf {
        self.root.path().join("data")
    }

    fn step_clock(&self, seconds: i64) -> io::Result<()> {
        WallClock::step_of(&self.clock, self.root.path(), seconds, || {
            self.kill()?;
            self.run()
        })
    }
}

impl Server for Redis {
    fn url(&self, link: Option<SocketAddr>) -> String {
        format!("redis://{}", link.unwrap_or(self.address))
    }

    fn wire(&self) -> Option<SocketAddr> {
        Some(self.address)
    }

    fn pull(&self, lever: Lever<'_>) -> io::Result<()> {
        match lever {
            Lever::Stop => self.signal(Signal::STOP),
            Lever::Continue => self.signal(Signal::CONT),
            Lever::Kill => self.kill(),
            Lever::Start => self.run(),
            Lever::StartEmpty => fs::remove_dir_all(self.data()).and_then(|()| self.run()),
            Lever::DeleteRecord(key) => self.command(&["DEL", key]).map(drop),
            Lever::LoseData => self.command(&["FLUSHALL"]).map(drop),
            Lever::KillClients => {
                self.command(&["CLIENT", "KILL", "TYPE", "normal"])?;
                self.command(&["CLIENT", "KILL", "TYPE", "pubsub"]).map(drop)
            }
            Lever::StepClock(seconds) => self.step_clock(seconds),
        }
    }

    fn command(&self, words: &[&str]) -> io::Result<String> {
        resp::command(self.address, Duration::from_secs(5), words)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        if let Err(error) = self.kill() {
            eprintln!("redis-server could not be ended: {error}");
        }
    }
}

fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}

fn tail(log: &str) -> &str {
    log.len().checked_sub(2000).and_then(|start| log.get(start..)).unwrap_or(log)
}
