//! MariaDB servers that a test starts for itself, and what it does to them.
// Each test binary is a crate of its own and uses a part of this.
#![allow(dead_code, unreachable_pub, unused_imports, clippy::unwrap_used)]

use std::{
    fs::{self, File},
    net::{Ipv4Addr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

pub use lock_conformance::asking::{PATIENCE, busy, held, until, until_answered};
use lock_core::{Backend, Claim, Name, Owner, Url, Wake};
use lock_mysql::{MysqlBackend, MysqlOptions};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// A server on a port of its own, killed when dropped. It has a database `app`, and users `locks` and
/// `others` who may do anything in it.
pub struct Server {
    child: Child,
    options: Vec<String>,
    pub port: u16,
    folder: TempDir,
}

impl Server {
    pub fn start(options: &[&str]) -> Self {
        let folder = tempfile::tempdir_in(if Path::new("/dev/shm").is_dir() { "/dev/shm" } else { "/tmp" });
        let folder = folder.unwrap();
        copy(&template(), &folder.path().join("data"));
        // One statement a line.
        let init = "CREATE DATABASE IF NOT EXISTS app;\n\
                    CREATE USER IF NOT EXISTS 'locks'@'127.0.0.1' IDENTIFIED BY 's3cr3t';\n\
                    CREATE USER IF NOT EXISTS 'others'@'127.0.0.1' IDENTIFIED BY 's3cr3t';\n\
                    GRANT ALL ON app.* TO 'locks'@'127.0.0.1';\n\
                    GRANT ALL ON app.* TO 'others'@'127.0.0.1';\n";
        fs::write(folder.path().join("init.sql"), init).unwrap();
        let options: Vec<_> = options.iter().map(ToString::to_string).collect();
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        let child = spawn(port, folder.path(), &options);
        let mut server = Self { child, options, port, folder };
        server.wait_until_ready();
        server
    }

    pub fn url(&self) -> String {
        format!("mariadb://locks:s3cr3t@127.0.0.1:{}/app", self.port)
    }

    pub fn options(&self) -> MysqlOptions {
        MysqlOptions::new("127.0.0.1", "app", "locks").port(self.port).password("s3cr3t")
    }

    pub async fn backend(&self) -> MysqlBackend {
        MysqlBackend::connect(self.options()).await.unwrap()
    }

    /// What a statement gives, run as root; lines of columns with tabs between them.
    pub fn sql(&self, text: &str) -> String {
        let Output { status, stdout, stderr } = self.client(text).output().unwrap();
        assert!(status.success(), "{text}: {}", String::from_utf8_lossy(&stderr));
        String::from_utf8(stdout).unwrap()
    }

    /// Runs statements as root, and goes on meanwhile.
    pub fn start_sql(&self, text: &str) -> Child {
        self.client(text).stdout(Stdio::piped()).spawn().unwrap()
    }

    fn client(&self, text: &str) -> Command {
        let mut command = Command::new("mariadb");
        command.args(["--no-defaults", "--batch", "--skip-column-names", "--user=root", "--database=app"]);
        command.arg("--socket").arg(self.folder.path().join("socket")).args(["--execute", text]);
        command
    }

    /// How many connections our users have.
    pub fn connections(&self) -> usize {
        let count = "SELECT COUNT(*) FROM information_schema.processlist WHERE user IN ('locks', 'others')";
        self.sql(count).trim().parse().unwrap()
    }

    /// How many connections sleep until they are woken.
    pub fn sleepers(&self) -> usize {
        let count = "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'SELECT GET_LOCK%'";
        self.sql(count).trim().parse().unwrap()
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts again on the same port and data, after [`kill`](Self::kill).
    pub fn restart(&mut self) {
        self.child = spawn(self.port, self.folder.path(), &self.options);
        self.wait_until_ready();
    }

    pub fn pause(&self) {
        kill_process(Pid::from_child(&self.child), Signal::STOP).unwrap();
    }

    pub fn resume(&self) {
        kill_process(Pid::from_child(&self.child), Signal::CONT).unwrap();
    }

    fn wait_until_ready(&mut self) {
        let since = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_err() {
            if let Some(status) = self.child.try_wait().unwrap() {
                let log = fs::read_to_string(self.folder.path().join("log")).unwrap();
                panic!("mariadbd ended at once: {status}\n{log}");
            }
            assert!(since.elapsed() < PATIENCE, "mariadbd does not listen");
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

fn spawn(port: u16, folder: &Path, options: &[String]) -> Child {
    let file = |name: &str| folder.join(name).display().to_string();
    let log = File::create(folder.join("log")).unwrap();
    Command::new("mariadbd")
        .args(["--no-defaults", "--user=root", "--bind-address=127.0.0.1", "--skip-name-resolve"])
        .args(["--innodb-buffer-pool-size=32M", "--innodb-log-file-size=8M"])
        .args([format!("--port={port}"), format!("--datadir={}", file("data"))])
        .args([format!("--socket={}", file("socket")), format!("--pid-file={}", file("pid"))])
        .args([format!("--tmpdir={}", folder.display()), format!("--init-file={}", file("init.sql"))])
        .args(options)
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .expect("mariadbd must be installed (Debian: apt-get install mariadb-server-core)")
}

/// A data directory to copy from, made once for all test programs.
fn template() -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("mariadb");
    fs::create_dir_all(&folder).unwrap();
    let one_at_a_time = File::create(folder.join("lock")).unwrap();
    one_at_a_time.lock().unwrap();
    let (made, template) = (folder.join("made"), folder.join("data"));
    if !template.is_dir() {
        let _ = fs::remove_dir_all(&made);
        let output = Command::new("mariadb-install-db")
            .args([
                "--no-defaults",
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
                "--user=root",
            ])
            .arg(format!("--datadir={}", made.display()))
            .output()
            .expect("mariadb-install-db must be installed (Debian: apt-get install mariadb-server-core)");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        fs::rename(&made, &template).unwrap();
    }
    template
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

pub async fn connect(url: &str) -> lock_core::Result<Box<dyn Backend>> {
    (lock_mysql::DRIVER.connect)(Url::parse(url)?).await
}

/// A new claim that waits, of 10 s.
pub fn claim(on: &str) -> Claim {
    let owner = Owner::random().unwrap();
    Claim::new(Name::new(on).unwrap(), owner, Duration::from_secs(10)).queued(true).labelled("test")
}

/// The wake of a claim that waits, once it has been silent for a while: a new bell may ring for nothing, and
/// one that fell is not hung up again at once.
pub async fn armed(backend: &impl Backend, claim: &Claim) -> Wake {
    let since = Instant::now();
    loop {
        assert!(since.elapsed() < PATIENCE, "no bell");
        let Some(mut wake) = busy(backend, claim).await.wake else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        if tokio::time::timeout(Duration::from_millis(300), &mut wake).await.is_err() {
            return wake;
        }
    }
}
