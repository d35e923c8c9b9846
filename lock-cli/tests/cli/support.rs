//! What the tests of the command share: the command, a directory, a server, and waiting for conditions.

use std::{
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal};
use tempfile::TempDir;

/// Longer than anything here takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// `polylock`, with nothing of the caller's configuration.
pub(crate) fn polylock() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polylock"));
    for variable in ["POLYLOCK_URL", "POLYLOCK_URL_FILE", "XDG_STATE_HOME"] {
        command.env_remove(variable);
    }
    command.stdin(Stdio::null());
    command
}

/// A fresh directory for locks and whatever commands leave.
pub(crate) struct Place(TempDir);

impl Place {
    pub(crate) fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn url(&self) -> String {
        format!("file://{}", self.path("locks").display())
    }

    /// What a command wrote into a file here; nothing if it did not yet.
    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// `polylock run` on the locks of this place, in this directory.
    pub(crate) fn run(&self, arguments: &[&str]) -> Command {
        run_at(&self.url(), self.0.path(), arguments)
    }
}

/// A run that holds `n` until the file `enough` appears.
pub(crate) fn hold(place: &Place) -> Process {
    let script = "touch held; while ! [ -e enough ]; do sleep 0.01; done";
    let holder = Process::start(&mut place.run(&["n", "--", "sh", "-c", script]));
    until("the lock is held", || place.path("held").exists());
    holder
}

/// `polylock run` with a URL, in a directory.
pub(crate) fn run_at(url: &str, directory: &Path, arguments: &[&str]) -> Command {
    let mut command = polylock();
    command.arg("run").args(arguments).env("POLYLOCK_URL", url).current_dir(directory);
    command
}

/// A process that is killed, if need be, when the test is over.
pub(crate) struct Process {
    child: Child,
    errors: Arc<Mutex<String>>,
}

impl Process {
    /// Starts it; what it writes to its standard error can be asked for, its standard output is dropped.
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let errors = Arc::<Mutex<String>>::default();
        let (mut stderr, collected) = (child.stderr.take().unwrap(), errors.clone());
        thread::spawn(move || {
            let mut piece = [0; 1024];
            while let Ok(length @ 1..) = stderr.read(&mut piece) {
                collected.lock().unwrap().push_str(&String::from_utf8_lossy(&piece[..length]));
            }
        });
        Self { child, errors }
    }

    /// Starts it with the input and output that the command has.
    pub(crate) fn at(command: &mut Command) -> Self {
        Self { child: command.spawn().unwrap(), errors: Arc::default() }
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        rustix::process::kill_process(self.pid(), signal).unwrap();
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits for its end. The exit code; `None` if it was killed.
    pub(crate) fn code(&mut self) -> Option<i32> {
        eventually("the process ends", || self.child.try_wait().unwrap()).code()
    }

    /// What it wrote to its standard error until now.
    pub(crate) fn errors(&self) -> String {
        self.errors.lock().unwrap().clone()
    }

    /// Waits until it says so on its standard error.
    pub(crate) fn says(&self, what: &str) {
        until(what, || self.errors().contains(what));
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A Redis server of the test's own.
pub(crate) struct Redis {
    process: Process,
    port: u16,
    password: Option<&'static str>,
    _data: TempDir,
}

impl Redis {
    pub(crate) fn start() -> Self {
        Self::start_with(None)
    }

    pub(crate) fn start_with(password: Option<&'static str>) -> Self {
        loop {
            let port = free_port();
            let data = TempDir::new().unwrap();
            let mut command = Command::new("redis-server");
            command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""]);
            command.args(["--appendonly", "no", "--dir"]).arg(data.path());
            if let Some(password) = password {
                command.args(["--requirepass", password]);
            }
            let found = Command::new("redis-server").arg("--version").output().is_ok();
            assert!(found, "redis-server is missing: `cargo xtask servers` installs it");
            let process = Process::start(command.stdin(Stdio::null()));
            let mut redis = Self { process, port, password, _data: data };
            // It ends at once if somebody else took the port in between.
            if eventually("redis-server answers", || redis.answers()) {
                return redis;
            }
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub(crate) fn pid(&self) -> Pid {
        self.process.pid()
    }

    /// The server's answer to an inline command.
    pub(crate) fn ask(&self, command: &str) -> String {
        self.try_ask(command).unwrap()
    }

    fn answers(&mut self) -> Option<bool> {
        if !self.process.is_running() {
            return Some(false);
        }
        // Whoever took the port may be a server that answers as well.
        let own = format!("\nprocess_id:{}\r", self.pid().as_raw_nonzero());
        self.try_ask("INFO server").filter(|answer| answer.contains(&own)).map(|_| true)
    }

    fn try_ask(&self, command: &str) -> Option<String> {
        let mut connection = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        if let Some(password) = self.password {
            writeln!(connection, "AUTH {password}\r").ok()?;
        }
        write!(connection, "{command}\r\nQUIT\r\n").ok()?;
        let mut answer = String::new();
        connection.read_to_string(&mut answer).ok()?;
        Some(answer)
    }
}

pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Waits until there is an answer.
pub(crate) fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(answer) = look() {
            return answer;
        }
        assert!(start.elapsed() < PATIENCE, "waited in vain: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until it holds.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    eventually(what, || holds().then_some(()));
}

/// The pid that a command wrote into a file.
pub(crate) fn pid_in(path: &Path) -> Pid {
    eventually("a pid is written", || {
        let text = fs::read_to_string(path).ok()?;
        Pid::from_raw(text.strip_suffix('\n')?.parse().ok()?)
    })
}

/// Whether a process runs: it exists and is no zombie that nobody reaps.
pub(crate) fn runs(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, fields)| !fields.trim_start().starts_with(['Z', 'X']))
}

pub(crate) fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}
