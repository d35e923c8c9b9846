use std::{
    env,
    fs::{self, File},
    io::{self, Read},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use rustix::process::Signal;

use super::{Scratch, clock::WallClock, scratch, shared};
use crate::{
    Lever, Need, Server,
    process::{guarded, kill, signal, spawn},
};

/// A MariaDB or MySQL process on a free port of this machine, its data in memory; with a database `locks`.
#[derive(Debug)]
pub struct Mysql {
    /// The program that is Oracle's MySQL; MariaDB's `mariadbd` without.
    oracle: Option<PathBuf>,
    address: SocketAddr,
    options: Vec<String>,
    root: Scratch,
    process: Mutex<Option<Child>>,
    clock: Mutex<Option<WallClock>>,
}

impl Mysql {
    /// What a fixture with this server can offer.
    pub const OFFERS: &'static [Need] = &[
        Need::Wire,
        Need::ServerProcess,
        Need::DeleteRecord,
        Need::LoseData,
        Need::KillClients,
        Need::StepClock,
    ];

    /// Starts `mariadbd` with these options and waits until it answers.
    ///
    /// # Errors
    ///
    /// If it cannot be started, with the end of its log.
    pub fn mariadb(options: &[&str]) -> io::Result<Self> {
        Self::start(None, options)
    }

    /// Oracle's `mysqld` on this machine: what `POLYLOCK_MYSQLD` names, or the first in the `PATH`. MariaDB
    /// calls its own server so, too; that one does not count.
    #[must_use]
    pub fn find_oracle() -> Option<PathBuf> {
        if let Some(program) = env::var_os("POLYLOCK_MYSQLD") {
            return Some(program.into());
        }
        let path = env::var_os("PATH")?;
        env::split_paths(&path).map(|folder| folder.join("mysqld")).find(|program| {
            let version = Command::new(program).arg("--version").stderr(Stdio::null()).output();
            version.is_ok_and(|told| !String::from_utf8_lossy(&told.stdout).contains("MariaDB"))
        })
    }

    /// Starts this program, Oracle's `mysqld` 8 or later, with these options.
    ///
    /// # Errors
    ///
    /// If it cannot be started, with the end of its log.
    pub fn oracle(program: impl Into<PathBuf>, options: &[&str]) -> io::Result<Self> {
        Self::start(Some(program.into()), options)
    }

    fn start(oracle: Option<PathBuf>, options: &[&str]) -> io::Result<Self> {
        let options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
        loop {
            let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
            let (oracle, options) = (oracle.clone(), options.clone());
            let server = Self {
                oracle,
                address,
                options,
                root: scratch()?,
                process: Mutex::default(),
                clock: Mutex::default(),
            };
            server.make_data()?;
            match server.run() {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                result => return result.map(|()| server),
            }
        }
    }

    /// Runs a statement as the server's root, and gives its rows as tab-separated lines.
    ///
    /// # Errors
    ///
    /// The server's error, or that the `mariadb` program is missing.
    pub fn sql(&self, text: &str) -> io::Result<String> {
        let mut command = Command::new("mariadb");
        command.args(["--no-defaults", "--batch", "--skip-column-names", "--user=root", "--socket"]);
        command.arg(self.root.path().join("socket")).args(["--execute", text]);
        let output = command
            .output()
            .map_err(|error| io::Error::other(format!("mariadb: {error}; install mariadb-client-core")))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()))
    }

    /// A fresh data directory; made once by the server's own script, and copied from then on.
    ///
    /// The programs of one test run share the original, which is called after their parent.
    fn make_data(&self) -> io::Result<()> {
        let parent = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
        let kind = if self.oracle.is_some() { "mysql" } else { "mariadb" };
        let shared = shared(&format!("{parent}-{kind}"))?;
        let one_at_a_time = File::create(shared.join("lock"))?;
        one_at_a_time.lock()?;
        copy(&self.template(&shared)?, &self.data())?;
        // One statement a line.
        let grant = "CREATE DATABASE IF NOT EXISTS locks;\n\
                     CREATE USER IF NOT EXISTS 'locks'@'127.0.0.1' IDENTIFIED BY 'secret';\n\
                     GRANT ALL ON locks.* TO 'locks'@'127.0.0.1';\n";
        fs::write(self.root.path().join("init.sql"), grant)
    }

    /// The data directory that others are copied from.
    fn template(&self, shared: &Path) -> io::Result<PathBuf> {
        let (made, template) = (shared.join("made"), shared.join("data"));
        if template.is_dir() {
            return Ok(template);
        }
        let mut command = if let Some(program) = &self.oracle {
            let mut command = Command::new(program);
            command.arg("--initialize-insecure");
            command
        } else {
            let mut command = Command::new("mariadb-install-db");
            command.args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"]);
            command
        };
        command.args(["--user=root", &format!("--datadir={}", made.display())]);
        let output = command.env("TMPDIR", self.root.path()).output().map_err(|error| {
            io::Error::other(format!("no data directory: {error}; install mariadb-server-core"))
        })?;
        if output.status.success() {
            fs::rename(&made, &template)?;
            return Ok(template);
        }
        let _ = fs::remove_dir_all(&made);
        Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()))
    }

    fn data(&self) -> PathBuf {
        self.root.path().join("data")
    }

    fn run(&self) -> io::Result<()> {
        let root = self.root.path();
        let log = root.join("log");
        let program =
            self.oracle.as_ref().map_or_else(|| "mariadbd".into(), |program| program.to_string_lossy());
        let mut command = guarded(&program)?;
        if let Some(clock) = &*self.clock.lock().unwrap_or_else(PoisonError::into_inner) {
            clock.rule(&mut command);
        }
        if self.oracle.is_some() {
            command.args(["--innodb-redo-log-capacity=16M", "--disable-log-bin", "--performance-schema=OFF"]);
        } else {
            command.args(["--no-defaults", "--innodb-log-file-size=8M"]);
        }
        command.args(["--user=root", "--bind-address=127.0.0.1", "--skip-name-resolve"]);
        command.arg("--innodb-buffer-pool-size=32M");
        command.arg(format!("--port={}", self.address.port()));
        command.arg(format!("--datadir={}", self.data().display()));
        command.arg(format!("--socket={}", root.join("socket").display()));
        command.arg(format!("--pid-file={}", root.join("pid").display()));
        command.arg(format!("--tmpdir={}", root.display()));
        command.arg(format!("--init-file={}", root.join("init.sql").display()));
        command.args(&self.options);
        let output = File::create(&log)?;
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let mut child = spawn(command)?;

        let deadline = Instant::now() + Duration::from_secs(20);
        while !self.greets() {
            if let Some(status) = child.try_wait()? {
                let log = fs::read_to_string(&log)?;
                if log.to_lowercase().contains("address already in use") {
                    return Err(io::ErrorKind::AddrInUse.into());
                }
                let hint = if status.code() == Some(127) { "; install mariadb-server-core" } else { "" };
                return Err(io::Error::other(format!("{program} ended with {status}{hint}\n{}", tail(&log))));
            }
            if Instant::now() > deadline {
                kill(&mut child)?;
                let log = fs::read_to_string(&log)?;
                return Err(io::Error::other(format!("{program} does not answer\n{}", tail(&log))));
            }
            thread::sleep(Duration::from_millis(5));
        }
        *self.process.lock().unwrap_or_else(PoisonError::into_inner) = Some(child);
        Ok(())
    }

    /// Whether the server has said its name to a new connection.
    fn greets(&self) -> bool {
        let greeting = || -> io::Result<bool> {
            let limit = Duration::from_secs(1);
            let mut stream = TcpStream::connect_timeout(&self.address, limit)?;
            stream.set_read_timeout(Some(limit))?;
            let mut greeting = [0; 64];
            let length = stream.read(&mut greeting)?;
            // A length and a number, and then the version of the protocol. Mistakes start with 255.
            Ok(length > 4 && greeting[4] == 10)
        };
        greeting().unwrap_or(false)
    }

    fn signal(&self, which: Signal) -> io::Result<()> {
        let process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        signal(process.as_ref().ok_or_else(|| io::Error::other("the server is not running"))?, which)
    }

    fn kill(&self) -> io::Result<()> {
        let process = self.process.lock().unwrap_or_else(PoisonError::into_inner).take();
        process.map_or(Ok(()), |mut child| kill(&mut child))
    }

    fn step_clock(&self, seconds: i64) -> io::Result<()> {
        WallClock::step_of(&self.clock, self.root.path(), seconds, || {
            self.kill()?;
            self.run()
        })
    }

    fn kill_clients(&self) -> io::Result<()> {
        let ids = self.sql("SELECT id FROM information_schema.processlist WHERE user = 'locks'")?;
        for id in ids.lines() {
            // It may be gone by itself.
            let _ = self.sql(&format!("KILL {id}"));
        }
        Ok(())
    }
}

impl Server for Mysql {
    fn url(&self, link: Option<SocketAddr>) -> String {
        format!("mysql://locks:secret@{}/locks", link.unwrap_or(self.address))
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
                fs::remove_dir_all(self.data())?;
                self.make_data()?;
                self.run()
            }
            Lever::DeleteRecord(row) => self.sql(&format!("DELETE FROM {row}")).map(drop),
            Lever::LoseData => {
                let drop_all = "SELECT CONCAT('DROP TABLE locks.', table_name, ';') \
                                FROM information_schema.tables WHERE table_schema = 'locks'";
                let drop_all = self.sql(drop_all)?;
                self.sql(&drop_all).map(drop)
            }
            Lever::KillClients => self.kill_clients(),
            Lever::StepClock(seconds) => self.step_clock(seconds),
        }
    }
}

impl Drop for Mysql {
    fn drop(&mut self) {
        if let Err(error) = self.kill() {
            eprintln!("{:?} could not be ended: {error}", self.oracle);
        }
    }
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

fn tail(log: &str) -> &str {
    log.len().checked_sub(2000).and_then(|start| log.get(start..)).unwrap_or(log)
}
