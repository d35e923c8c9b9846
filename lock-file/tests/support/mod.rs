//! What the tests share.

#![allow(dead_code, unused_imports, reason = "no test file uses all of it")]

use std::{
    env, fs,
    io::{BufRead, BufReader, Read, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    time::Duration,
};

pub(crate) use lock_conformance::asking::{PATIENCE, busy, held};
use lock_core::{Attempt, Backend, Busy, Claim, ErrorKind, Grant, Name, Owner, Result};
use lock_file::{FileBackend, FileOptions};
use rustix::process::{Pid, Signal, kill_process};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

/// A lease that no test outlives.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// A lock directory of the test's own.
pub(crate) struct Locks {
    folder: TempDir,
}

impl Locks {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("locks")
    }

    pub(crate) fn state_file(&self, name: &str) -> PathBuf {
        self.path().join(format!("{name}.lock"))
    }

    pub(crate) async fn connect(&self) -> FileBackend {
        connect(&self.path()).await
    }

    /// What a state file looks like after the machine was started again.
    pub(crate) fn pretend_reboot(&self, name: &str) {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        let file = fs::read_to_string(self.state_file(name)).unwrap();
        let pages: Vec<String> = file
            .as_bytes()
            .chunks(4096)
            .map(|page| String::from_utf8(page.to_vec()).unwrap())
            .map(|page| match page.trim_end().strip_prefix("polylock 1 ") {
                Some(text) => {
                    let (_, record) = text.split_once(' ').unwrap();
                    let record = record.replace(boot.trim_end(), "00000000-0000-4000-8000-000000000000");
                    let sum: String =
                        Sha256::digest(&record)[..8].iter().map(|byte| format!("{byte:02x}")).collect();
                    format!("{:4095}\n", format!("polylock 1 {sum} {record}\n"))
                }
                None => page,
            })
            .collect();
        assert_ne!(pages.concat(), file);
        fs::write(self.state_file(name), pages.concat()).unwrap();
    }
}

pub(crate) async fn connect(path: &Path) -> FileBackend {
    FileBackend::connect(FileOptions::new(path)).await.unwrap()
}

/// A new claim that waits.
pub(crate) fn claim(name: &str, lease: Duration) -> Claim {
    Claim::new(Name::new(name).unwrap(), Owner::random().unwrap(), lease).queued(true)
}

/// Waits as core does, until the claim holds.
pub(crate) async fn acquire(backend: &FileBackend, claim: &Claim) -> Grant {
    loop {
        match patiently(|| backend.acquire(claim)).await {
            Attempt::Held(grant) => return grant,
            Attempt::Busy(Busy { wake: Some(wake), recheck_within, .. }) => {
                let _ = tokio::time::timeout(recheck_within, wake).await;
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Asks until the kernel's lock is to be had, as core does: who has it may be stalled.
pub(crate) async fn patiently<T, F: Future<Output = Result<T>>>(verb: impl Fn() -> F) -> T {
    loop {
        match verb().await {
            Err(error) if error.kind() == ErrorKind::Timeout => {}
            answer => return answer.unwrap(),
        }
    }
}

/// Another process that holds the lock `x`: the test program itself, which runs its test `child`.
///
/// It ends when it is dropped, or when the test process dies.
pub(crate) struct Holder {
    child: Child,
    _stdin: ChildStdin,
    /// What it holds.
    pub(crate) claim: Claim,
    /// The token it was granted.
    pub(crate) token: u64,
    /// The process that inherited its liveness descriptor, if asked for.
    pub(crate) heir: Option<Pid>,
}

impl Holder {
    pub(crate) fn start(locks: &Locks, lease: Duration, heir: bool) -> Self {
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--exact", "child", "--ignored", "--nocapture"])
            .env("LOCK_FILE_TEST", locks.path())
            .env("LOCK_FILE_TEST_LEASE", lease.as_millis().to_string())
            .env("LOCK_FILE_TEST_HEIR", heir.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap())
            .lines()
            .map(|line| line.unwrap())
            .find_map(|line| line.split_once("holding ").map(|(_, said)| said.to_owned()))
            .expect("the child says that it holds");
        let [owner, token, heir] = said.split(' ').collect::<Vec<_>>()[..] else { panic!("{said}") };
        let owner = Owner::from_hex(owner).unwrap();
        Self {
            child,
            _stdin: stdin,
            claim: Claim::new(Name::new("x").unwrap(), owner, lease),
            token: token.parse().unwrap(),
            heir: heir.parse().ok().and_then(Pid::from_raw),
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// kill -9, and its end.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn kill_heir(&mut self) {
        kill_process(self.heir.take().unwrap(), Signal::KILL).unwrap();
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        if let Some(heir) = self.heir {
            let _ = kill_process(heir, Signal::KILL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The other side of [`Holder::start`].
pub(crate) async fn hold_as_child() {
    let Some(path) = env::var_os("LOCK_FILE_TEST") else { return };
    let backend = connect(Path::new(&path)).await;
    let lease = env::var("LOCK_FILE_TEST_LEASE").unwrap().parse().map(Duration::from_millis).unwrap();
    let claim = claim("x", lease);
    let token = held(&backend, &claim).await.token;
    let heir = (env::var("LOCK_FILE_TEST_HEIR").unwrap() == "true").then(|| {
        let descriptor = backend.liveness().unwrap();
        rustix::io::fcntl_setfd(&descriptor, rustix::io::FdFlags::empty()).unwrap();
        Command::new("sleep").arg("60").stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap().id()
    });
    let mut out = std::io::stdout();
    let heir = heir.map_or_else(|| "-".into(), |id| id.to_string());
    writeln!(out, "holding {} {token} {heir}", claim.owner.to_hex()).unwrap();
    // Until the test is over: its end of the pipe closes.
    let _ = std::io::stdin().read(&mut [0]);
}
