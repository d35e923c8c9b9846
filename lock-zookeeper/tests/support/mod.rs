//! ZooKeeper servers that a test starts for itself, and what it does to them.
// Each test binary is a crate of its own and uses a part of this.
#![allow(dead_code, unreachable_pub, unused_imports, clippy::unwrap_used)]

mod tap;

use std::{
    fs::{self, File},
    io::{Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

pub use lock_conformance::asking::{PATIENCE, busy, held, held_at_last};
use lock_conformance::asking::{pause, resume};
pub use lock_conformance::logs::Log;
use lock_core::{Claim, Name, Owner};
use lock_zookeeper::{ZookeeperBackend, ZookeeperOptions};
use tempfile::TempDir;
use zookeeper_client::Client;

pub use tap::Tap;

/// Small enough that sessions of half a second are exact.
pub const TICK: Duration = Duration::from_millis(50);

const JARS: &str = "/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar";

/// An ensemble on ports of its own, killed when dropped.
pub struct Ensemble {
    members: Vec<Member>,
    _folder: TempDir,
}

struct Member {
    port: u16,
    folder: std::path::PathBuf,
    process: Option<Child>,
}

impl Ensemble {
    /// One server, or an ensemble that has a leader.
    pub fn start(members: usize) -> Self {
        let memory = Path::new("/dev/shm");
        let folder =
            if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
        let ports = free_ports(3 * members);
        let peers: String = (0..members)
            .filter(|_| members > 1)
            .map(|n| format!("server.{n}=127.0.0.1:{}:{}\n", ports[3 * n + 1], ports[3 * n + 2]))
            .collect();
        let mut ensemble = Self { members: Vec::new(), _folder: folder };
        for number in 0..members {
            let folder = ensemble._folder.path().join(number.to_string());
            let port = ports[3 * number];
            fs::create_dir_all(folder.join("data")).unwrap();
            fs::write(folder.join("data/myid"), number.to_string()).unwrap();
            fs::write(folder.join("zoo.cfg"), configuration(&folder, port, &peers)).unwrap();
            ensemble.members.push(Member { port, folder, process: None });
        }
        ensemble.members.iter_mut().for_each(Member::run);
        ensemble.members.iter_mut().for_each(Member::wait_until_ready);
        ensemble
    }

    /// All members, as URLs and drivers name them.
    pub fn servers(&self) -> Vec<String> {
        self.members.iter().map(|member| format!("127.0.0.1:{}", member.port)).collect()
    }

    pub fn options(&self) -> ZookeeperOptions {
        options(self.servers())
    }

    /// For one member only.
    pub fn options_of(&self, member: usize) -> ZookeeperOptions {
        options([self.servers()[member].clone()])
    }

    pub async fn backend(&self) -> ZookeeperBackend {
        ZookeeperBackend::connect(self.options()).await.unwrap()
    }

    /// A client of the test's own.
    pub async fn admin(&self) -> Client {
        Client::connect(&self.servers().join(",")).await.unwrap()
    }

    /// The member that leads.
    pub fn leader(&self) -> usize {
        let leads =
            |member: &Member| member.four_letters("srvr").is_some_and(|text| text.contains("Mode: leader"));
        self.members.iter().position(leads).expect("a leader")
    }

    pub fn kill(&mut self, member: usize) {
        let mut process = self.members[member].process.take().unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
    }

    /// Starts it again with the data that it kept.
    pub fn restart(&mut self, member: usize) {
        self.members[member].run();
        self.members[member].wait_until_ready();
    }

    pub fn pause(&self, member: usize) {
        pause(self.members[member].process.as_ref().unwrap());
    }

    pub fn resume(&self, member: usize) {
        resume(self.members[member].process.as_ref().unwrap());
    }

    /// Closes a session past its client, on the first member: it is then over as if it had run out.
    pub fn close_session(&self, id: i64) {
        let mut stream = self.speak_for(id, [1_i32.to_be_bytes(), (-11_i32).to_be_bytes()].concat());
        // Both answers, and the end.
        stream.read_to_end(&mut Vec::new()).unwrap();
    }

    /// Makes an ephemeral sequential node that a session owns, past its client, on the first member.
    pub fn create_in_session(&self, id: i64, path: &str) {
        let text =
            |text: &str| [&i32::try_from(text.len()).unwrap().to_be_bytes()[..], text.as_bytes()].concat();
        let number = |number: i32| number.to_be_bytes().to_vec();
        // A number of the client's, the kind, path, no data, one entry of an ACL, and what kind of node.
        let parts = [number(1), number(1), text(path), text(""), number(1), number(31), text("world")];
        let create = [parts.concat(), text("anyone"), number(3)].concat();
        let mut stream = self.speak_for(id, create);
        let mut answer = Vec::new();
        for _ in 0..2 {
            let mut length = [0; 4];
            stream.read_exact(&mut length).unwrap();
            answer = vec![0; u32::from_be_bytes(length).try_into().unwrap()];
            stream.read_exact(&mut answer).unwrap();
        }
        // After two numbers there is the error, if any.
        assert_eq!(answer[12..16], [0; 4], "{path} was not made");
    }

    /// Takes a session up on a connection of its own, and sends one request.
    fn speak_for(&self, id: i64, request: Vec<u8>) -> TcpStream {
        // Version, last transaction, timeout, session, its password, and that it wants to write.
        let mut connect = vec![0; 12];
        connect.extend(10_000_i32.to_be_bytes());
        connect.extend(id.to_be_bytes());
        connect.extend(16_i32.to_be_bytes());
        connect.extend(password(id));
        connect.push(0);
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.members[0].port)).unwrap();
        for frame in [connect, request] {
            stream.write_all(&i32::try_from(frame.len()).unwrap().to_be_bytes()).unwrap();
            stream.write_all(&frame).unwrap();
        }
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// How many watches there are on the first member.
    pub fn watches(&self) -> usize {
        let summary = self.four_letters("wchs");
        summary.lines().last().unwrap().split(':').next_back().unwrap().trim().parse().unwrap()
    }

    /// The answer of the first member to a command of four letters.
    pub fn four_letters(&self, word: &str) -> String {
        self.members[0].four_letters(word).unwrap()
    }
}

impl Member {
    fn run(&mut self) {
        let log = File::create(self.folder.join("log")).unwrap();
        let process = Command::new("java")
            .args(["-Xms16m", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"])
            .args(["-Djava.net.preferIPv4Stack=true", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"])
            .arg("-Dznode.container.checkIntervalMs=100")
            .args(["-cp", JARS, "org.apache.zookeeper.server.quorum.QuorumPeerMain"])
            .arg(self.folder.join("zoo.cfg"))
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn();
        self.process = Some(process.expect("java must be installed (Debian: apt-get install zookeeper)"));
    }

    fn wait_until_ready(&mut self) {
        let since = Instant::now();
        while !self.four_letters("srvr").is_some_and(|text| text.contains("Mode:")) {
            let ended = self.process.as_mut().is_none_or(|process| process.try_wait().unwrap().is_some());
            assert!(
                !ended && since.elapsed() < Duration::from_secs(60),
                "zookeeper does not serve (Debian: apt-get install zookeeper):\n{}",
                fs::read_to_string(self.folder.join("log")).unwrap_or_default()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn four_letters(&self, word: &str) -> Option<String> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(1))).ok()?;
        stream.write_all(word.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// All at once, so that they differ.
fn free_ports(count: usize) -> Vec<u16> {
    let listeners: Vec<_> =
        (0..count).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()).collect();
    listeners.iter().map(|listener| listener.local_addr().unwrap().port()).collect()
}

/// The server's passwords are the first numbers of Java's generator.
fn password(session: i64) -> Vec<u8> {
    const FACTOR: i64 = 0x5_deec_e66d;
    let mut seed = session ^ 0xb341_5c00 ^ FACTOR;
    (0..4)
        .flat_map(|_| {
            seed = seed.wrapping_mul(FACTOR).wrapping_add(0xb) & ((1 << 48) - 1);
            ((seed >> 16) as i32).to_le_bytes()
        })
        .collect()
}

fn configuration(folder: &Path, port: u16, peers: &str) -> String {
    let tick = TICK.as_millis();
    format!(
        "tickTime={tick}\ndataDir={}/data\nclientPort={port}\nclientPortAddress=127.0.0.1\n\
         admin.enableServer=false\n4lw.commands.whitelist=*\nmaxClientCnxns=0\nforceSync=no\npreAllocSize=64\n\
         initLimit=200\nsyncLimit=40\nmaxSessionTimeout=600000\n{peers}",
        folder.display()
    )
}

fn options(servers: impl IntoIterator<Item = String>) -> ZookeeperOptions {
    let options = ZookeeperOptions::new(servers).root("/locks").unwrap();
    options.tick(TICK).connect_timeout(Duration::from_secs(5))
}

pub fn name(name: &str) -> Name {
    Name::new(name).unwrap()
}

/// A new claim for ten seconds.
pub fn claim(of: &str) -> Claim {
    Claim::new(name(of), Owner::random().unwrap(), Duration::from_secs(10)).labelled("test")
}
