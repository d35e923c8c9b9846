//! etcd servers that a test starts for itself, and what it does to them.
// Each test binary is a crate of its own and uses a part of this.
#![allow(dead_code, unreachable_pub, unused_imports)]

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use etcd_client::{Client, GetOptions};
pub use lock_conformance::asking::{PATIENCE, busy, held, held_at_last, until_answered};
use lock_conformance::asking::{pause, resume};
pub use lock_conformance::relay::Relay;
use lock_core::{Backend, Claim, Name, Owner, Url};
use lock_etcd::{EtcdBackend, EtcdOptions};
use tempfile::TempDir;

/// A member of a cluster, killed when dropped. Its data is in memory where there is such a place.
pub struct Server {
    child: Child,
    program: String,
    arguments: Vec<String>,
    pub port: u16,
    pub folder: TempDir,
}

impl Server {
    /// A cluster of one.
    pub fn start(arguments: &[&str]) -> Self {
        let [server] = Self::cluster_with("etcd", arguments);
        server
    }

    pub fn cluster<const N: usize>(program: &str) -> [Self; N] {
        Self::cluster_with(program, &[])
    }

    fn cluster_with<const N: usize>(program: &str, arguments: &[&str]) -> [Self; N] {
        for _ in 0..5 {
            let mut servers = Self::spawn_cluster(program, arguments);
            // Another process may have been given one of the ports meanwhile.
            if servers.iter_mut().all(Self::becomes_ready) {
                return servers;
            }
        }
        panic!("etcd ends at once");
    }

    fn spawn_cluster<const N: usize>(program: &str, arguments: &[&str]) -> [Self; N] {
        // All ports are bound at once, so that they differ.
        let listeners: [_; N] = std::array::from_fn(|_| (listener(), listener()));
        let ports = listeners.map(|(clients, peers)| (port(&clients), port(&peers)));
        let members: Vec<_> =
            ports.iter().map(|(name, peers)| format!("n{name}=http://127.0.0.1:{peers}")).collect();
        ports.map(|(clients, peers)| {
            let folder = scratch();
            let scheme = if arguments.contains(&"--cert-file") { "https" } else { "http" };
            let at = format!("{scheme}://127.0.0.1:{clients}");
            let peer = format!("http://127.0.0.1:{peers}");
            let own = [
                ["--name", &format!("n{clients}")],
                ["--data-dir", &folder.path().join("data").display().to_string()],
                ["--listen-client-urls", &at],
                ["--advertise-client-urls", &at],
                ["--listen-peer-urls", &peer],
                ["--initial-advertise-peer-urls", &peer],
                ["--initial-cluster", &members.join(",")],
                ["--heartbeat-interval", "50"],
                ["--election-timeout", "500"],
                ["--log-level", "error"],
            ];
            let arguments: Vec<_> =
                own.as_flattened().iter().chain(arguments).map(ToString::to_string).collect();
            let child = spawn(program, &arguments);
            Self { child, program: program.into(), arguments, port: clients, folder }
        })
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub fn url(&self) -> String {
        format!("etcd://{}", self.address())
    }

    pub async fn backend(&self) -> EtcdBackend {
        EtcdBackend::connect(EtcdOptions::new([self.address()]).unwrap()).await.unwrap()
    }

    /// A client of the test's own.
    pub async fn admin(&self) -> Client {
        Client::connect([self.address()], None).await.unwrap()
    }

    pub fn etcdctl(&self) -> Command {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").args(["--endpoints", &self.address()]);
        command
    }

    /// Runs `etcdctl`, which must succeed.
    pub fn control(&self, words: &[&str]) -> Output {
        let output = self.etcdctl().args(words).output().expect("etcdctl must be installed");
        assert!(output.status.success(), "{words:?}: {output:?}");
        output
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts again with the same data, after [`kill`](Self::kill).
    pub fn restart(&mut self) {
        self.child = spawn(&self.program, &self.arguments);
        assert!(self.becomes_ready(), "etcd ended at once");
    }

    /// Stops it; returns when none of its threads runs any more.
    pub fn pause(&self) {
        pause(&self.child);
    }

    pub fn resume(&self) {
        resume(&self.child);
    }

    /// Waits until it answers; `false` if it has ended instead.
    fn becomes_ready(&mut self) -> bool {
        let since = Instant::now();
        // Over TLS a socket has to do.
        let tls = self.arguments.iter().any(|argument| argument == "--cert-file");
        while !if tls { TcpStream::connect(self.address()).is_ok() } else { self.is_healthy() } {
            if self.child.try_wait().unwrap().is_some() {
                return false;
            }
            assert!(since.elapsed() < PATIENCE, "etcd is not healthy");
            std::thread::sleep(Duration::from_millis(10));
        }
        true
    }

    fn is_healthy(&self) -> bool {
        self.page("/health").is_ok_and(|answer| answer.contains(r#""health":"true""#))
    }

    /// How many messages of gRPC it has received from clients.
    pub fn messages(&self) -> u64 {
        self.messages_of("")
    }

    /// How many of a method that is named so.
    pub fn messages_of(&self, method: &str) -> u64 {
        let page = self.page("/metrics").unwrap();
        let lines = page
            .lines()
            .filter(|line| line.starts_with("grpc_server_msg_received_total{") && line.contains(method));
        let numbers = lines.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap() as u64);
        numbers.sum()
    }

    fn page(&self, path: &str) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(self.address())?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }
}

/// The etcd that is installed, and the one that `POLYLOCK_ETCD` names.
pub fn programs() -> Vec<String> {
    let other = std::env::var("POLYLOCK_ETCD").ok();
    if other.is_none() {
        eprintln!("POLYLOCK_ETCD names no other etcd: the installed one alone is tested");
    }
    ["etcd".to_owned()].into_iter().chain(other).collect()
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(program: &str, arguments: &[String]) -> Child {
    Command::new(program)
        .args(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("etcd must be installed (Debian: apt-get install etcd-server etcd-client)")
}

pub fn scratch() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory).unwrap() } else { tempfile::tempdir().unwrap() }
}

fn listener() -> TcpListener {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()
}

fn port(listener: &TcpListener) -> u16 {
    listener.local_addr().unwrap().port()
}

pub async fn connect(url: &str) -> lock_core::Result<Box<dyn Backend>> {
    (lock_etcd::DRIVER.connect)(Url::parse(url)?).await
}

/// The name that `etcdctl lock` takes for the same lock.
pub fn lock_name(server: &Server, name: &str) -> String {
    (lock_etcd::DRIVER.key)(&Url::parse(&server.url()).unwrap(), &Name::new(name).unwrap()).unwrap()
}

/// A new claim that waits, of 10 s.
pub fn claim(on: &str) -> Claim {
    claim_for(on, Duration::from_secs(10))
}

pub fn claim_for(on: &str, lease: Duration) -> Claim {
    Claim::new(Name::new(on).unwrap(), Owner::random().unwrap(), lease).queued(true).labelled("test")
}

/// A future that must end in time.
pub async fn soon<F: Future>(what: &str, future: F) -> F::Output {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("not seen: {what}"))
}

pub async fn leases(admin: &mut Client) -> usize {
    admin.leases().await.unwrap().leases().len()
}

/// Waits until the server has so many leases.
pub async fn until_leases(admin: &mut Client, count: usize) {
    let since = Instant::now();
    loop {
        let found = leases(admin).await;
        if found == count {
            return;
        }
        assert!(since.elapsed() < PATIENCE, "{found} leases, not {count}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// All keys under the usual prefix.
pub async fn keys(admin: &mut Client) -> Vec<String> {
    let found = admin.get("polylock/", Some(GetOptions::new().with_prefix())).await.unwrap();
    found.kvs().iter().map(|kv| kv.key_str().unwrap().to_owned()).collect()
}
