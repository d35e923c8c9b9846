//! MariaDB and MySQL servers that a test starts for itself, and what it does to them.
// Each test binary is a crate of its own and uses a part of this.
#![allow(dead_code, unreachable_pub, unused_imports, clippy::unwrap_used)]

use std::{
    fs::{self, File},
    io::Read,
    net::{Ipv4Addr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

pub use lock_conformance::asking::{PATIENCE, busy, held, held_at_last, until, until_answered};
use lock_conformance::asking::{pause, resume};
use lock_conformance::servers::Mysql;
use lock_core::{Backend, Claim, Name, Owner, Url, Wake};
use lock_mysql::{MysqlBackend, MysqlOptions};
use tempfile::TempDir;

/// Whose server it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    MariaDb,
    /// Oracle's, as [`Mysql::find_oracle`] finds it.
    Oracle,
}

/// Makes two tests of a function that takes a [`Kind`].
#[macro_export]
macro_rules! on_both {
    ($test:ident $(, $($runtime:tt)*)?) => {
        mod $test {
            use $crate::support::Kind;

            #[tokio::test$(($($runtime)*))?]
            async fn mariadb() {
                super::$test(Kind::MariaDb).await;
            }

            #[tokio::test$(($($runtime)*))?]
            async fn mysql() {
                if Kind::Oracle.is_here() {
                    super::$test(Kind::Oracle).await;
                }
            }
        }
    };
}

/// A server on a port of its own, killed when dropped. It has a database `app`, and users `locks` and
/// `others` who may do anything in it.
pub struct Server {
    kind: Kind,
    child: Child,
    options: Vec<String>,
    pub port: u16,
    folder: TempDir,
}

impl Server {
    pub fn start(kind: Kind, options: &[&str]) -> Self {
        Self::start_on(kind, options, |_| {})
    }

    /// The same, with something done to its data directory before.
    pub fn start_on(kind: Kind, options: &[&str], prepare: impl FnOnce(&Path)) -> Self {
        let folder = tempfile::tempdir_in(if Path::new("/dev/shm").is_dir() { "/dev/shm" } else { "/tmp" });
        let folder = folder.unwrap();
        let data = folder.path().join("data");
        copy(&kind.template(), &data);
        prepare(&data);
        // One statement a line.
        let init = "CREATE DATABASE IF NOT EXISTS app;\n\
                    CREATE USER IF NOT EXISTS 'locks'@'127.0.0.1' IDENTIFIED BY 's3cr3t';\n\
                    CREATE USER IF NOT EXISTS 'others'@'127.0.0.1' IDENTIFIED BY 's3cr3t';\n\
                    GRANT ALL ON app.* TO 'locks'@'127.0.0.1';\n\
                    GRANT ALL ON app.* TO 'others'@'127.0.0.1';\n";
        fs::write(folder.path().join("init.sql"), init).unwrap();
        let options: Vec<_> = options.iter().map(ToString::to_string).collect();
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        let child = kind.spawn(port, folder.path(), &options);
        let mut server = Self { kind, child, options, port, folder };
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

    /// What the server has counted.
    pub fn status(&self, name: &str) -> u32 {
        let shown = self.sql(&format!("SHOW GLOBAL STATUS LIKE '{name}'"));
        shown.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    /// Another session's transaction, which has locked the row of a lock.
    pub async fn stranger(&self, name: &str) -> Stranger<'_> {
        let lock = format!("SELECT * FROM polylock WHERE name = '{name}' FOR UPDATE");
        let mut client = self.client(&format!("START TRANSACTION; {lock}; SELECT SLEEP(300)"));
        let client = client.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let sleeping = "SELECT id FROM information_schema.processlist WHERE info LIKE 'SELECT SLEEP(300)%'";
        until("the stranger's transaction", || !self.sql(sleeping).is_empty()).await;
        Stranger { server: self, client, id: self.sql(sleeping) }
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
        self.child = self.kind.spawn(self.port, self.folder.path(), &self.options);
        self.wait_until_ready();
    }

    /// Stops it; returns when none of its threads runs any more.
    pub fn pause(&self) {
        pause(&self.child);
    }

    pub fn resume(&self) {
        resume(&self.child);
    }

    fn wait_until_ready(&mut self) {
        let since = Instant::now();
        while !self.greets() {
            let log = || fs::read_to_string(self.folder.path().join("log")).unwrap();
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("{:?} ended at once: {status}\n{}", self.kind, log());
            }
            assert!(since.elapsed() < PATIENCE, "{:?} does not answer\n{}", self.kind, log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Whether it has said its name to a new connection: it listens before.
    fn greets(&self) -> bool {
        let Ok(mut stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)) else { return false };
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.read_exact(&mut [0; 5]).is_ok()
    }
}

/// See [`Server::stranger`].
pub struct Stranger<'a> {
    server: &'a Server,
    client: Child,
    id: String,
}

impl Stranger<'_> {
    /// Ends its transaction.
    pub fn leave(mut self) {
        self.server.sql(&format!("KILL {}", self.id));
        self.client.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Kind {
    /// Whether it can be tested here; MariaDB has to be there.
    pub fn is_here(self) -> bool {
        let here = self == Self::MariaDb || Mysql::find_oracle().is_some();
        if !here {
            eprintln!("MYSQL IS NOT TESTED: neither POLYLOCK_MYSQLD nor the PATH has a mysqld of Oracle's");
        }
        here
    }

    fn spawn(self, port: u16, folder: &Path, options: &[String]) -> Child {
        let file = |name: &str| folder.join(name).display().to_string();
        let log = File::create(folder.join("log")).unwrap();
        let mut command = match self {
            Self::MariaDb => {
                let mut command = Command::new("mariadbd");
                command.args(["--no-defaults", "--innodb-log-file-size=8M"]);
                command
            }
            Self::Oracle => {
                let mut command = Command::new(Mysql::find_oracle().unwrap());
                command.args(["--innodb-redo-log-capacity=16M", "--disable-log-bin"]);
                command
            }
        };
        command
            .args(["--user=root", "--bind-address=127.0.0.1", "--skip-name-resolve"])
            .args(["--innodb-buffer-pool-size=32M", "--performance-schema=OFF"])
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
    fn template(self) -> PathBuf {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(match self {
            Self::MariaDb => "mariadb",
            Self::Oracle => "mysql",
        });
        fs::create_dir_all(&folder).unwrap();
        let one_at_a_time = File::create(folder.join("lock")).unwrap();
        one_at_a_time.lock().unwrap();
        let (made, template) = (folder.join("made"), folder.join("data"));
        if !template.is_dir() {
            let _ = fs::remove_dir_all(&made);
            let mut command = match self {
                Self::MariaDb => {
                    let mut command = Command::new("mariadb-install-db");
                    command.args([
                        "--no-defaults",
                        "--auth-root-authentication-method=normal",
                        "--skip-test-db",
                    ]);
                    command
                }
                Self::Oracle => {
                    let mut command = Command::new(Mysql::find_oracle().unwrap());
                    command.arg("--initialize-insecure");
                    command
                }
            };
            command.args(["--user=root", &format!("--datadir={}", made.display())]);
            let output = command
                .output()
                .expect("mariadb-install-db must be installed (Debian: apt-get install mariadb-server-core)");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            fs::rename(&made, &template).unwrap();
        }
        template
    }
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
