use std::{
    fs::{self, File},
    io::{self, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use rustix::process::Signal;

use super::{Scratch, scratch};
use crate::{
    Lever, Need, Server,
    process::{guarded, kill, signal, spawn},
};

/// etcd on free ports of this machine, its data in memory: one member, or a cluster of three.
///
/// A client with a link speaks to the first member alone, one without to all. The levers move all members
/// at once.
#[derive(Debug)]
pub struct Etcd {
    members: Vec<Member>,
    program: String,
    _root: Scratch,
}

#[derive(Debug)]
struct Member {
    clients: SocketAddr,
    peers: SocketAddr,
    folder: PathBuf,
    process: Mutex<Option<Child>>,
}

impl Etcd {
    /// What a fixture with this server can offer.
    pub const OFFERS: &'static [Need] = &[Need::Wire, Need::ServerProcess, Need::DeleteRecord];

    /// Starts the `etcd` that is installed, and waits until it is healthy.
    ///
    /// # Errors
    ///
    /// If it cannot be started, with the end of its log.
    pub fn start() -> io::Result<Self> {
        Self::start_members("etcd", 1)
    }

    /// Starts three members of this program, and waits until all of them are healthy.
    ///
    /// # Errors
    ///
    /// If they cannot be started, with the end of a log.
    pub fn cluster(program: &str) -> io::Result<Self> {
        Self::start_members(program, 3)
    }

    fn start_members(program: &str, count: usize) -> io::Result<Self> {
        loop {
            let server = Self::configured(program, count)?;
            match server.run() {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                result => return result.map(|()| server),
            }
        }
    }

    /// Members on ports that are free now.
    fn configured(program: &str, count: usize) -> io::Result<Self> {
        let root = scratch()?;
        let mut members = Vec::new();
        for (id, addresses) in free_addresses(2 * count)?.chunks(2).enumerate() {
            let folder = root.path().join(id.to_string());
            fs::create_dir(&folder)?;
            let process = Mutex::default();
            members.push(Member { clients: addresses[0], peers: addresses[1], folder, process });
        }
        Ok(Self { members, program: program.to_owned(), _root: root })
    }

    /// Starts all before waiting for any: a member without others is not healthy.
    fn run(&self) -> io::Result<()> {
        let cluster: Vec<_> =
            self.members.iter().map(|member| format!("{}=http://{}", member.name(), member.peers)).collect();
        let cluster = cluster.join(",");
        let started = self.members.iter().try_for_each(|member| member.spawn(&self.program, &cluster));
        let healthy = started.and_then(|()| self.members.iter().try_for_each(Member::wait_until_healthy));
        if healthy.is_err() {
            self.kill()?;
        }
        healthy
    }

    fn signal(&self, which: Signal) -> io::Result<()> {
        self.members.iter().try_for_each(|member| member.signal(which))
    }

    fn kill(&self) -> io::Result<()> {
        self.members.iter().try_for_each(Member::kill)
    }

    /// Runs `etcdctl`.
    fn control(&self, words: &[&str]) -> io::Result<()> {
        let mut command = Command::new("etcdctl");
        let endpoint = self.members[0].clients.to_string();
        command.env("ETCDCTL_API", "3").args(["--endpoints", &endpoint]).args(words);
        let output = command
            .output()
            .map_err(|error| io::Error::other(format!("etcdctl: {error}; install etcd-client")))?;
        if output.status.success() {
            return Ok(());
        }
        Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()))
    }
}

impl Member {
    fn name(&self) -> String {
        format!("n{}", self.peers.port())
    }

    fn spawn(&self, program: &str, cluster: &str) -> io::Result<()> {
        let (clients, peers) = (format!("http://{}", self.clients), format!("http://{}", self.peers));
        let mut command = guarded(program)?;
        command.args(["--name", &self.name(), "--log-level", "error"]);
        command.arg("--data-dir").arg(self.folder.join("data"));
        command.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
        command.args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers]);
        command.args(["--initial-cluster", cluster]);
        // With the usual election timeout of a second the shortest lease would be two.
        command.args(["--heartbeat-interval", "50", "--election-timeout", "500"]);
        let output = File::create(self.folder.join("log"))?;
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        *self.process.lock().unwrap_or_else(PoisonError::into_inner) = Some(spawn(command)?);
        Ok(())
    }

    fn wait_until_healthy(&self) -> io::Result<()> {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !self.is_healthy() {
            let log = || fs::read_to_string(self.folder.join("log"));
            if let Some(status) = self.status()? {
                let log = log()?;
                if log.contains("address already in use") {
                    return Err(io::ErrorKind::AddrInUse.into());
                }
                let hint =
                    if status.code() == Some(127) { "; install etcd-server (3.4 or later)" } else { "" };
                return Err(io::Error::other(format!("etcd ended with {status}{hint}\n{}", tail(&log))));
            }
            if Instant::now() > deadline {
                return Err(io::Error::other(format!("etcd is not healthy\n{}", tail(&log()?))));
            }
            thread::sleep(Duration::from_millis(10));
        }
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

    /// `None` while it runs.
    fn status(&self) -> io::Result<Option<std::process::ExitStatus>> {
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        process.as_mut().ok_or_else(not_running)?.try_wait()
    }

    fn signal(&self, which: Signal) -> io::Result<()> {
        let process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        signal(process.as_ref().ok_or_else(not_running)?, which)
    }

    fn kill(&self) -> io::Result<()> {
        let process = self.process.lock().unwrap_or_else(PoisonError::into_inner).take();
        process.map_or(Ok(()), |mut child| kill(&mut child))
    }
}

impl Server for Etcd {
    fn url(&self, link: Option<SocketAddr>) -> String {
        let addresses: Vec<_> = match link {
            Some(link) => vec![link.to_string()],
            None => self.members.iter().map(|member| member.clients.to_string()).collect(),
        };
        format!("etcd://{}", addresses.join(","))
    }

    fn wire(&self) -> Option<SocketAddr> {
        Some(self.members[0].clients)
    }

    fn pull(&self, lever: Lever<'_>) -> io::Result<()> {
        match lever {
            Lever::Stop => self.signal(Signal::STOP),
            Lever::Continue => self.signal(Signal::CONT),
            Lever::Kill => self.kill(),
            Lever::Start => self.run(),
            Lever::StartEmpty => {
                for member in &self.members {
                    fs::remove_dir_all(member.folder.join("data"))?;
                }
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

fn not_running() -> io::Error {
    io::Error::other("etcd is not running")
}

/// They differ, since all are bound at once.
fn free_addresses(count: usize) -> io::Result<Vec<SocketAddr>> {
    let bind = |_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let listeners = (0..count).map(bind).collect::<io::Result<Vec<_>>>()?;
    listeners.iter().map(TcpListener::local_addr).collect()
}

fn tail(log: &str) -> &str {
    log.len().checked_sub(2000).and_then(|start| log.get(start..)).unwrap_or(log)
}
