//! Redis servers that a test starts for itself, and what it does to them.
// Each test binary is a crate of its own and uses a part of this.
#![allow(dead_code, unreachable_pub, unused_imports)]

use std::{
    fs::{self, File},
    net::{Ipv4Addr, TcpListener},
    path::Path,
    process::{Child, Command},
    time::{Duration, Instant},
};

pub use lock_conformance::asking::{PATIENCE, busy, held, until, until_answered};
use lock_conformance::asking::{pause, resume};
use lock_core::{Backend, Claim, Moment, Name, Owner, Url};
use lock_redis::{RedisBackend, RedisOptions};
use redis::{Connection, FromRedisValue};
use tempfile::TempDir;

/// What the server says, in its folder.
const LOG: &str = "log";

/// A server on a port of its own, killed when dropped.
pub struct Server {
    child: Child,
    arguments: Vec<String>,
    pub port: u16,
    pub folder: TempDir,
}

impl Server {
    pub fn start(arguments: &[&str]) -> Self {
        Self::start_with(|_| arguments.iter().map(ToString::to_string).collect())
    }

    /// With arguments that depend on the port: on another one if somebody takes it in between.
    pub fn start_with(arguments: impl Fn(u16) -> Vec<String>) -> Self {
        for _ in 0..10 {
            let (port, folder) = (free_port(), tempfile::tempdir().unwrap());
            let arguments = arguments(port);
            let child = spawn(port, folder.path(), &arguments);
            let mut server = Self { child, arguments, port, folder };
            match server.until_ready() {
                Ok(()) => return server,
                Err(said) => assert!(said.contains("Address already in use"), "{said}"),
            }
        }
        panic!("no port is left for redis-server");
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub fn options(&self) -> RedisOptions {
        RedisOptions::new("127.0.0.1").port(self.port)
    }

    /// With patience for a dial that is stalled, ours or the server's.
    pub async fn backend(&self) -> RedisBackend {
        RedisBackend::connect(self.options().connect_timeout(PATIENCE)).await.unwrap()
    }

    /// A connection of the test's own, as the user `default`.
    pub fn admin(&self) -> Connection {
        redis::Client::open(self.url()).unwrap().get_connection().unwrap()
    }

    /// One command of the test's own.
    pub fn ask<T: FromRedisValue>(&self, command: &str) -> T {
        ask(&mut self.admin(), command)
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts again on the same port and folder, after [`kill`](Self::kill).
    pub fn restart(&mut self) {
        self.child = spawn(self.port, self.folder.path(), &self.arguments);
        self.until_ready().unwrap();
    }

    pub fn pause(&self) {
        pause(&self.child);
    }

    pub fn resume(&self) {
        resume(&self.child);
    }

    /// Waits for the child's own word: somebody else may listen on its port. An error is what it said before
    /// it ended.
    fn until_ready(&mut self) -> Result<(), String> {
        let since = Instant::now();
        loop {
            let ended = self.child.try_wait().unwrap();
            let said = fs::read_to_string(self.folder.path().join(LOG)).unwrap();
            if let Some(status) = ended {
                return Err(format!("redis-server ended at once: {status}\n{said}"));
            }
            if said.contains("Ready to accept connections") {
                return Ok(());
            }
            assert!(since.elapsed() < PATIENCE, "redis-server does not listen: {said}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(port: u16, folder: &Path, arguments: &[String]) -> Child {
    Command::new("redis-server")
        .args(["--bind", "127.0.0.1", "--save", "", "--daemonize", "no", "--port", &port.to_string()])
        .arg("--dir")
        .arg(folder)
        .args(arguments)
        .stdout(File::create(folder.join(LOG)).unwrap())
        .spawn()
        .expect("redis-server must be installed (Debian: apt-get install redis-server)")
}

pub fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
}

pub fn ask<T: FromRedisValue>(connection: &mut Connection, command: &str) -> T {
    let mut words = command.split(' ');
    let mut cmd = redis::cmd(words.next().unwrap());
    words.for_each(|word| _ = cmd.arg(word));
    cmd.query(connection).unwrap_or_else(|e| panic!("{command}: {e}"))
}

pub async fn connect(url: &str) -> lock_core::Result<Box<dyn Backend>> {
    (lock_redis::DRIVER.connect)(Url::parse(url)?).await
}

pub fn name(name: &str) -> Name {
    Name::new(name).unwrap()
}

/// A new claim that waits, whose lease no test outlives.
pub fn claim(on: &str) -> Claim {
    Claim::new(name(on), Owner::random().unwrap(), Duration::from_secs(60)).queued(true).labelled("test")
}

/// When a key ends of which the server has just said how long it lasts. It counts in whole milliseconds of
/// its wall clock: two of them are allowed.
pub fn ends(left: Duration) -> Moment {
    Moment::now() + left + Duration::from_millis(2)
}
