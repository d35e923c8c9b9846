use std::{
    fs::{self, File},
    io::{self, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::{Child, Stdio},
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

const JARS: [&str; 2] = ["/usr/share/java/zookeeper.jar", "/usr/share/java/slf4j-simple.jar"];

/// A ZooKeeper server of one member on a free port of this machine, its data in memory.
#[derive(Debug)]
pub struct ZooKeeper {
    address: SocketAddr,
    root: TempDir,
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
        for jar in JARS {
            if !Path::new(jar).exists() {
                let text = format!("{jar} is missing; install zookeeper and libslf4j-java");
                return Err(io::Error::new(io::ErrorKind::NotFound, text));
            }
        }
        loop {
            let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
            let server = Self { address, root: scratch()?, process: Mutex::default() };
            match server.run() {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                result => return result.map(|()| server),
            }
        }
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The answer to a command of four letters.
    ///
    /// # Errors
    ///
    /// If the server cannot be reached.
    pub fn four_letters(&self, word: &str) -> io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&self.address, Duration::from_secs(1))?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        stream.write_all(word.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    fn run(&self) -> io::Result<()> {
        let root = self.root.path().display();
        let (port, tick) = (self.address.port(), Self::TICK.as_millis());
        let (configuration, log) = (self.root.path().join("zoo.cfg"), self.root.path().join("log"));
        fs::write(
            &configuration,
            format!(
                "tickTime={tick}\ndataDir={root}/data\nclientPort={port}\nclientPortAddress=127.0.0.1\n\
                 admin.enableServer=false\n4lw.commands.whitelist=*\nmaxClientCnxns=0\nforceSync=no\n\
                 preAllocSize=64\nminSessionTimeout={}\nmaxSessionTimeout=600000\n",
                2 * tick
            ),
        )?;
        fs::create_dir_all(self.root.path().join("data"))?;
        let mut command = guarded("java")?;
        command.args(["-Xms16m", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]);
        command.args(["-Djava.net.preferIPv4Stack=true", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]);
        command.args(["-cp", &JARS.join(":"), "org.apache.zookeeper.server.quorum.QuorumPeerMain"]);
        command.arg(&configuration);
        let output = File::create(&log)?;
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let mut child = spawn(command)?;

        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(status) = child.try_wait()? {
                let log = fs::read_to_string(&log)?;
                if log.contains("Address already in use") {
                    return Err(io::ErrorKind::AddrInUse.into());
                }
                let hint = if status.code() == Some(127) { "; install a java runtime" } else { "" };
                let end = log.len().saturating_sub(2000);
                let end = log.get(end..).unwrap_or(&log);
                return Err(io::Error::other(format!("zookeeper ended with {status}{hint}\n{end}")));
            }
            if self.four_letters("srvr").is_ok_and(|answer| answer.contains("Mode:")) {
                break;
            }
            if Instant::now() > deadline {
                kill(&mut child)?;
                return Err(io::Error::other(format!("zookeeper does not serve\n{}", fs::read_to_string(&log)?)));
            }
            thread::sleep(Duration::from_millis(10));
        }
        *self.process.lock().unwrap_or_else(PoisonError::into_inner) = Some(child);
        Ok(())
    }

    fn signal(&self, which: Signal) -> io::Result<()> {
        let process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        signal(process.as_ref().ok_or_else(|| io::Error::other("zookeeper is not running"))?, which)
    }

    fn kill(&self) -> io::Result<()> {
        let process = self.process.lock().unwrap_or_else(PoisonError::into_inner).take();
        process.map_or(Ok(()), |mut child| kill(&mut child))
    }
}

impl Server for ZooKeeper {
    fn url(&self, link: Option<SocketAddr>) -> String {
        let (address, tick) = (link.unwrap_or(self.address), Self::TICK.as_millis());
        format!("zookeeper://{address}/suite/locks?tick={tick}ms&connect_timeout=2s")
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
            Lever::StartEmpty => {
                fs::remove_dir_all(self.root.path().join("data"))?;
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
