//! The server that the benchmarks start for themselves.
#![allow(unreachable_pub)] // Each benchmark is a crate of its own.

use std::{
    fs,
    io::{Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use tempfile::TempDir;

use crate::Failure;

/// A server on a port of its own, its data in memory and not synced.
pub struct Server {
    process: Child,
    pub address: String,
    _folder: TempDir,
}

impl Server {
    pub fn start() -> Result<Self, Failure> {
        let memory = Path::new("/dev/shm");
        let folder = if memory.is_dir() { tempfile::tempdir_in(memory)? } else { tempfile::tempdir()? };
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let port = address.port();
        let (configuration, data) = (folder.path().join("zoo.cfg"), folder.path().join("data"));
        fs::create_dir(&data)?;
        let text = format!(
            "dataDir={}\nclientPort={port}\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\nforceSync=no\n\
             preAllocSize=4096\n",
            data.display()
        );
        fs::write(&configuration, text)?;
        let process = Command::new("java")
            .args(["-Xmx256m", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"])
            .args(["-cp", "/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar"])
            .arg("org.apache.zookeeper.server.quorum.QuorumPeerMain")
            .arg(&configuration)
            .stdout(Stdio::null())
            .spawn()
            .map_err(|e| format!("java must be installed (Debian: apt-get install zookeeper): {e}"))?;
        let server = Self { process, address: address.to_string(), _folder: folder };
        let since = Instant::now();
        while !server.serves() {
            if since.elapsed() > Duration::from_secs(30) {
                return Err("zookeeper does not serve (Debian: apt-get install zookeeper)".into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(server)
    }

    fn serves(&self) -> bool {
        let ask = || -> std::io::Result<String> {
            let mut stream = TcpStream::connect(&self.address)?;
            // A server that is just starting may neither answer nor hang up.
            stream.set_read_timeout(Some(Duration::from_secs(1)))?;
            stream.write_all(b"srvr")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        };
        ask().is_ok_and(|answer| answer.contains("Mode:"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
