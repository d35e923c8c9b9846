use std::{
    fs::{self, File},
    io::{self, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Stdio},
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

const JARS: [&str; 2] = ["/usr/share/java/zookeeper.jar", "/usr/share/java/slf4j-simple.jar"];

/// ZooKeeper on free ports of this machine, its data in memory: one server, or an ensemble of three.
///
/// A client with a link speaks to the first member alone, one without to all. The levers move all members
/// at once.
#[derive(Debug)]
pub struct ZooKeeper {
    members: Vec<Member>,
    _root: Scratch,
}

#[derive(Debug)]
struct Member {
    address: SocketAddr,
    folder: PathBuf,
    process: Mutex<Option<Child>>,
}

impl ZooKeeper {
    /// What a fixture with this server can offer, beside the deletion of a node, which takes a client.
    pub const OFFERS: &'static [Need] = &[Need::Wire, Need::ServerProcess];

    /// The server's tick, for URLs.
    pub const TICK: Duration = Duration::from_millis(50);

    /// Starts a server and waits until it serves.
    ///
    /// # Errors
    ///
    /// If it cannot be started, with the end of its log.
    pub fn start() -> io::Result<Self> {
        Self::start_members(1)
    }

    /// Starts an ensemble of three and waits until all of them serve.
    ///
    /// # Errors
    ///
    /// If it cannot be started, with the end of a log.
    pub fn ensemble() -> io::Result<Self> {
        Self::start_members(3)
    }

    /// Where it listens; the first member of an ensemble.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.members[0].address
    }

    /// The answer to a command of four letters; the first member's.
    ///
    /// # Errors
    ///
    /// If the server cannot be reached.
    pub fn four_letters(&self, word: &str) -> io::Result<String> {
        self.members[0].four_letters(word)
    }

    fn start_members(count: usize) -> io::Result<Self> {
        for jar in JARS {
            if !Path::new(jar).exists() {
                let text = format!("{jar} is missing; install zookeeper and libslf4j-java");
                return Err(io::Error::new(io::ErrorKind::NotFound, text));
            }
        }
        loop {
            let server = Self::configured(count)?;
            match server.run() {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                result => return result.map(|()| server),
            }
        }
    }

    /// Members on ports that are free now.
    fn configured(count: usize) -> io::Result<Self> {
        let root = scratch()?;
        let addresses = free_addresses(3 * count)?;
        let (clients, peers) = addresses.split_at(count);
        // A server that knows of no others does not look for them.
        let peers = peers.chunks(2).enumerate().filter(|_| count > 1);
        let peers: String = peers
            .map(|(id, ports)| format!("server.{id}=127.0.0.1:{}:{}\n", ports[0].port(), ports[1].port()))
            .collect();
        let mut members = Vec::new();
        for (id, address) in clients.iter().enumerate() {
            let folder = root.path().join(id.to_string());
            fs::create_dir(&folder)?;
            fs::write(folder.join("zoo.cfg"), configuration(&folder, *address, &peers))?;
            let member = Member { address: *address, folder, process: Mutex::default() };
            member.make_data(id)?;
            members.push(member);
        }
        Ok(Self { members, _root: root })
    }

    /// Starts all before waiting for any: a member without others does not serve.
    fn run(&self) -> io::Result<()> {
        let started = self.members.iter().try_for_each(Member::spawn);
        let serving = started.and_then(|()| self.members.iter().try_for_each(Member::wait_until_it_serves));
        if serving.is_err() {
            self.kill()?;
        }
        serving
    }

    fn signal(&self, which: Signal) -> io::Result<()> {
        self.members.iter().try_for_each(|member| member.signal(which))
    }

    fn kill(&self) -> io::Result<()> {
        self.members.iter().try_for_each(Member::kill)
    }
}

impl Member {
    fn make_data(&self, id: usize) -> io::Result<()> {
        let data = self.folder.join("data");
        fs::create_dir(&data)?;
        fs::write(data.join("myid"), id.to_string())
    }

    fn spawn(&self) -> io::Result<()> {
        let mut command = guarded("java")?;
        command.args([
            "-Xms16m",
            "-Xmx128m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-XX:-UsePerfData",
        ]);
        command.args(["-Djava.net.preferIPv4Stack=true", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]);
        command.args(["-cp", &JARS.join(":"), "org.apache.zookeeper.server.quorum.QuorumPeerMain"]);
        command.arg(self.folder.join("zoo.cfg"));
        let output = File::create(self.folder.join("log"))?;
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        *self.process.lock().unwrap_or_else(PoisonError::into_inner) = Some(spawn(command)?);
        Ok(())
    }

    fn wait_until_it_serves(&self) -> io::Result<()> {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !self.four_letters("srvr").is_ok_and(|answer| answer.contains("Mode:")) {
            let log = || fs::read_to_string(self.folder.join("log"));
            if let Some(status) = self.status()? {
                let log = log()?;
                if log.contains("Address already in use") {
                    return Err(io::ErrorKind::AddrInUse.into());
                }
                let hint = if status.code() == Some(127) { "; install a java runtime" } else { "" };
                let end = log.get(log.len().saturating_sub(2000)..).unwrap_or(&log);
                return Err(io::Error::other(format!("zookeeper ended with {status}{hint}\n{end}")));
            }
            if Instant::now() > deadline {
                return Err(io::Error::other(format!("zookeeper does not serve\n{}", log()?)));
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    fn four_letters(&self, word: &str) -> io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&self.address, Duration::from_secs(1))?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        stream.write_all(word.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
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

impl Server for ZooKeeper {
    fn url(&self, link: Option<SocketAddr>) -> String {
        let addresses = match link {
            Some(link) => link.to_string(),
            None => {
                self.members.iter().map(|member| member.address.to_string()).collect::<Vec<_>>().join(",")
            }
        };
        format!("zookeeper://{addresses}/suite/locks?tick={}ms&connect_timeout=5s", Self::TICK.as_millis())
    }

    fn wire(&self) -> Option<SocketAddr> {
        Some(self.address())
    }

    fn pull(&self, lever: Lever<'_>) -> io::Result<()> {
        match lever {
            Lever::Stop => self.signal(Signal::STOP),
            Lever::Continue => self.signal(Signal::CONT),
            Lever::Kill => self.kill(),
            Lever::Start => self.run(),
            Lever::StartEmpty => {
                for (id, member) in self.members.iter().enumerate() {
                    fs::remove_dir_all(member.folder.join("data"))?;
                    member.make_data(id)?;
                }
                self.run()
            }
            other => {
                let text = format!("this server has no lever {other:?}");
                Err(io::Error::new(io::ErrorKind::Unsupported, text))
            }
        }
    }
}

impl Drop for ZooKeeper {
    fn drop(&mut self) {
        if let Err(error) = self.kill() {
            eprintln!("zookeeper could not be ended: {error}");
        }
    }
}

fn configuration(folder: &Path, address: SocketAddr, peers: &str) -> String {
    let tick = ZooKeeper::TICK.as_millis();
    // An election on a loaded machine takes its time; a member that was stopped for a while stays one.
    format!(
        "tickTime={tick}\ndataDir={}/data\nclientPort={}\nclientPortAddress=127.0.0.1\n\
         admin.enableServer=false\n4lw.commands.whitelist=*\nmaxClientCnxns=0\nforceSync=no\npreAllocSize=64\n\
         initLimit=200\nsyncLimit=40\nminSessionTimeout={}\nmaxSessionTimeout=600000\n{peers}",
        folder.display(),
        address.port(),
        2 * tick
    )
}

fn not_running() -> io::Error {
    io::Error::other("zookeeper is not running")
}

/// They differ, since all are bound at once.
fn free_addresses(count: usize) -> io::Result<Vec<SocketAddr>> {
    let bind = |_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let listeners = (0..count).map(bind).collect::<io::Result<Vec<_>>>()?;
    listeners.iter().map(TcpListener::local_addr).collect()
}
