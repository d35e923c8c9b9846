use std::{
    fs::{self, File},
    io::{self, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use tempfile::TempDir;

use super::scratch;
use crate::{
    Lever, Need, Server,
    process::{guarded, kill, signal, spawn},
};

/// A single `etcd` on free ports of this machine, its data in memory.
#[derive(Debug)]
pub struct Etcd {
    clients: SocketAddr,
    peers: SocketAddr,
    root: TempDir,
    process: Mutex<Option<Child>>,
}

impl Etcd {
    /// What a fixture with this server can offer.
    pub const OFFERS: &'static [Need] = &[Need::Wire, Need::ServerProcess, Need::DeleteRecord];

    /// Starts `etcd` and waits until it is healthy.
    ///
    /// # Errors
    ///
    /// If it cannot be started, with the end of its log.
    pub fn start() -> io::Result<Self> {
        loop {
            let (clients, peers) = free_addresses()?;
            let server = Self { clients, peers, root: scratch()?, process: Mutex::default() };
            match server.run() {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                result => return result.map(|()| server),
            }
        }
    }

    fn run(&self) -> io::Result<()> {
        let log = self.root.path().join("log");
        let (clients, peers) = (format!("http://{}", self.clients), format!("http://{}", self.peers));
        let mut command = guarded("etcd")?;
        command.args(["--name", "n1", "--log-level", "error"]);
        command.arg("--data-dir").arg(self.root.path().join("data"));
        command.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
        command.args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers]);
        command.args(["--initial-cluster", &format!("n1={peers}")]);
        // With the usual election timeout of a second the shortest lease would be two.
        command.args(["--heartbeat-interval", "50", "--election-timeout", "500"]);
        let output = File::create(&log)?;
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let mut child = spawn(command)?;

        let deadline = Instant::now() + Duration::from_secs(20);
        while !self.is_healthy() {
            if let Some(status) = child.try_wait()? {
                let log = fs::read_to_string(&log)?;
                if log.contains("address already in use") {
                    return Err(io::ErrorKind::AddrInUse.into());
                }
                let hint = if status.code() == Some(127) { "; install etcd-server (3.4 or later)" } else { "" };
                return Err(io::Error::other(format!("etcd ended with {status}{hint}\n{}", tail(&log))));
            }
            if Instant::now() > deadline {
                kill(&mut child)?;
                let log = fs::read_to_string(&log)?;
                return Err(io::Error::other(format!("etcd is not healthy\n{}", tail(&log))));
            }
            thread::sleep(Duration::from_millis(10));
        }
        *self.process.lock().unwrap_or_else(PoisonError::into_inner) = Some(child);
        Ok(())
    }

    fn is_healthy(&self) -> bool {
        let ask = || -> io::Result<String> {
            let limit = Duration::from_secs(1);
            let mut stream = TcpStream::connect_timeout(&self.clients, limit)?;
            stream.set_read_timeout(Some(limit))?;
            stream.write_all(b"GET /health HTTP/1.0\r\n\r\n")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        };
        ask().is_ok_and(|answer| answer.contains(r#""health":"true""#))
    }

    fn signal(&self, which: Signal) -> io::Result<()> {
        let process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        signal(process.as_ref().ok_or_else(|| io::Error::other("etcd is not running"))?, which)
    }

    fn kill(&self) -> io::Result<()> {
        let process = self.process.lock().unwrap_or_else(PoisonError::into_inner).take();
        process.map_or(Ok(()), |mut child| kill(&mut child))
    }

    /// Runs `etcdctl`.
    fn control(&self, words: &[&str]) -> io::Result<()> {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").args(["--endpoints", &self.clients.to_string()]).args(words);
        let output = command
            .output()
            .map_err(|error| io::Error::other(format!("etcdctl: {error}; install etcd-client")))?;
        if output.status.success() {
            return Ok(());
        }
        Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()))
    }
}

impl Server for Etcd {
    fn url(&self, link: Option<SocketAddr>) -> String {
        format!("etcd://{}", link.unwrap_or(self.clients))
    }

    fn wire(&self) -> Option<SocketAddr> {
        Some(self.clients)
    }

    fn pull(&self, lever: Lever<'_>) -> io::Result<()> {
        match lever {
            Lever::Stop => self.signal(Signal::STOP),
            Lever::Continue => self.signal(Signal::CONT),
            Lever::Kill => self.kill(),
            Lever::Start => self.run(),
            Lever::StartEmpty => {
                fs::remove_dir_all(self.root.path().join("data"))?;
                self.run()
            }
            Lever::DeleteRecord(lock) => self.control(&["del", "--prefix", &format!("{lock}/")]),
            _ => Err(io::Error::new(io::ErrorKind::Unsupported, format!("etcd has no lever {lever:?}"))),
        }
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        if let Err(error) = self.kill() {
            eprintln!("etcd could not be ended: {error}");
        }
    }
}

/// Two that differ, since both are bound at once.
fn free_addresses() -> io::Result<(SocketAddr, SocketAddr)> {
    let bind = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let (one, other) = (bind()?, bind()?);
    Ok((one.local_addr()?, other.local_addr()?))
}

fn tail(log: &str) -> &str {
    log.len().checked_sub(2000).and_then(|start| log.get(start..)).unwrap_or(log)
}
