//! Lock libraries in other languages: a small program each, in a process of its own, which is told what to
//! do line by line and measures itself. `bench/peers/loops.py` says what it is told.

use std::{
    fs,
    ops::Range,
    path::Path,
    process::{Command as Blocking, Stdio},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    sync::Mutex,
    time::timeout,
};

use super::{Client, Contender, Lock};
use crate::{
    failure::{Failure, Result},
    place::Place,
    record::{self, Kind, Workload},
    server::process,
    workload::Hold,
};

const LOOPS: &str = include_str!("../../peers/loops.py");
/// A JVM on a busy machine takes its time.
const START: Duration = Duration::from_secs(30);

pub(super) fn add(backend: &str, all: &mut Vec<Box<dyn Contender>>) {
    let mut add = |peer: Peer| all.push(Box::new(peer) as Box<dyn Contender>);
    match backend {
        "redis" => add(Peer::python("redis-py Lock", "redis", include_str!("../../peers/redis_lock.py"))),
        "zookeeper" => {
            add(Peer::python("kazoo Lock", "kazoo", include_str!("../../peers/kazoo_lock.py")));
            add(Peer::curator());
        }
        _ => {}
    }
}

/// Where Debian puts Java's libraries.
const JARS: &str = "/usr/share/java";
const CURATOR: [&str; 8] = [
    "curator-recipes",
    "curator-framework",
    "curator-client",
    "zookeeper",
    "zookeeper-jute",
    "guava",
    "slf4j-api",
    "slf4j-nop",
];

struct Peer {
    name: &'static str,
    language: &'static str,
    file: &'static str,
    source: String,
    /// The program and what stands in front of the source's path.
    start: Vec<String>,
    /// The library's version, or that it is not there.
    version: std::result::Result<String, String>,
}

impl Peer {
    fn python(name: &'static str, module: &str, source: &str) -> Self {
        let ask = format!("import {module}; print({module}.__version__)");
        // Debian's packages are for Debian's interpreter, which may not be the first in the path.
        let answer = |program: &str| {
            let output = Blocking::new(program).args(["-c", &ask]).stderr(Stdio::null()).output().ok()?;
            let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            output.status.success().then_some((program.to_owned(), version))
        };
        let found = ["python3", "/usr/bin/python3"].into_iter().find_map(answer);
        let (program, version) = match found {
            Some((program, version)) => (program, Ok(version)),
            None => (String::new(), Err(format!("{module} is not installed for python3"))),
        };
        Self {
            name,
            language: "Python",
            file: "peer.py",
            source: format!("{LOOPS}\n\n{source}"),
            start: vec![program],
            version,
        }
    }

    fn curator() -> Self {
        let jars = CURATOR.map(|jar| format!("{JARS}/{jar}.jar"));
        // It is a link to the file that has the version in its name.
        let file = fs::canonicalize(Path::new(&jars[0])).ok();
        let version = file.as_ref().and_then(|file| file.file_stem()?.to_str()?.rsplit('-').next());
        let has_java = Blocking::new("javac").arg("-version").output().is_ok();
        let version = version.filter(|_| has_java).map(str::to_owned);
        Self {
            name: "Curator InterProcessMutex",
            language: "Java",
            file: "Curator.java",
            source: include_str!("../../peers/Curator.java").into(),
            start: vec!["java".into(), "-cp".into(), jars.join(":")],
            version: version.ok_or_else(|| "Curator or a Java development kit is not installed".into()),
        }
    }
}

#[async_trait]
impl Contender for Peer {
    fn who(&self) -> record::Contender {
        record::Contender {
            name: self.name.into(),
            kind: Kind::Peer,
            language: self.language.into(),
            version: self.version.clone().unwrap_or_default(),
        }
    }

    fn lacks(&self, workload: Workload) -> Option<&str> {
        match (&self.version, workload) {
            (Err(missing), _) => Some(missing),
            (_, Workload::Waiting | Workload::Holding | Workload::HoldingMany | Workload::Crash) => {
                Some("not measured of peers in other languages")
            }
            _ => None,
        }
    }

    async fn open(&self, place: &Place) -> Result<Arc<dyn Client>> {
        self.version.clone().map_err(Failure::new)?;
        let arguments = arguments(place)?;
        let folder = tempfile::tempdir()?;
        let source = folder.path().join(self.file);
        fs::write(&source, &self.source)?;
        let mut command = Command::new(&self.start[0]);
        command.args(&self.start[1..]).arg(source).args(arguments);
        Ok(Arc::new(Foreign::start(command, folder).await?))
    }
}

/// The server and where to lock on it; a password would be seen by others.
fn arguments(place: &Place) -> Result<Vec<String>> {
    let url = place.parsed()?;
    if url.rest().contains('@') || !matches!(url.scheme(), "redis" | "zookeeper") {
        return Err(Failure::new("measured without password and TLS only"));
    }
    let usual = if place.backend() == "redis" { 6379 } else { 2181 };
    let (addresses, path) = place.addresses(usual)?;
    let servers: Vec<_> = addresses.iter().map(ToString::to_string).collect();
    let path = match place.backend() {
        "zookeeper" if path.is_empty() => format!("/{}", place.mark()),
        "zookeeper" => format!("/{}/{}", path.trim_end_matches('/'), place.mark()),
        _ => path,
    };
    Ok(vec![servers.join(","), path])
}

/// A peer's process.
pub(crate) struct Foreign(Arc<Mutex<Talk>>);

struct Talk {
    process: Child,
    orders: ChildStdin,
    words: Lines<BufReader<ChildStdout>>,
    _folder: TempDir,
}

impl Talk {
    async fn ask(&mut self, order: &str, patience: Duration) -> Result<Vec<String>> {
        self.orders.write_all(format!("{order}\n").as_bytes()).await?;
        self.answer(patience).await
    }

    /// The lines until the dot.
    async fn answer(&mut self, patience: Duration) -> Result<Vec<String>> {
        let lines = async {
            let mut lines = Vec::new();
            loop {
                match self.words.next_line().await? {
                    Some(line) if line == "." => return Ok(lines),
                    Some(line) => lines.push(line),
                    None => return Err(Failure::new("the peer's process ended")),
                }
            }
        };
        let answer = timeout(patience, lines).await;
        answer.map_err(|_| Failure::new(format!("the peer said nothing for {patience:?}")))?
    }
}

impl Foreign {
    /// Starts a peer whose files are in a folder, and waits until it is ready.
    async fn start(mut command: Command, folder: TempDir) -> Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
        let mut process = command.spawn()?;
        let pipes = process.stdin.take().zip(process.stdout.take());
        let (orders, words) = pipes.ok_or_else(|| Failure::new("a peer without pipes"))?;
        let mut talk = Talk { process, orders, words: BufReader::new(words).lines(), _folder: folder };
        talk.answer(START).await?;
        Ok(Self(Arc::new(Mutex::new(talk))))
    }

    /// A thread and a name each: how many pairs, and the CPU time of the process.
    pub(crate) async fn throughput(
        &self,
        name: &str,
        tasks: usize,
        span: Duration,
    ) -> Result<(u64, Duration)> {
        let mut talk = self.0.lock().await;
        let id: Vec<_> = talk.process.id().into_iter().collect();
        let before = process::cpu_time(&id).unwrap_or_default();
        let order = format!("throughput {name} {tasks} {}", span.as_secs_f64());
        let answer = talk.ask(&order, span + START).await?;
        let cpu = process::cpu_time(&id).unwrap_or_default().saturating_sub(before);
        let count = answer.first().ok_or_else(|| Failure::new("the peer did not say how many"))?;
        Ok((count.parse()?, cpu))
    }

    /// A thread for each waiter, until the end.
    pub(crate) async fn contend(&self, name: &str, waiters: Range<usize>, end: u64) -> Result<Vec<Hold>> {
        let order = format!("contend {name} {} {} {end}", waiters.start, waiters.end);
        let span = Duration::from_nanos(end.saturating_sub(crate::measure::now()));
        let holds = self.0.lock().await.ask(&order, span + START).await?;
        holds.iter().map(|line| Hold::read(line)).collect()
    }
}

#[async_trait]
impl Client for Foreign {
    fn lock(&self, name: &str) -> Result<Box<dyn Lock>> {
        Ok(Box::new(Far { talk: self.0.clone(), name: name.into() }))
    }

    fn foreign(&self) -> Option<&Foreign> {
        Some(self)
    }
}

struct Far {
    talk: Arc<Mutex<Talk>>,
    name: String,
}

#[async_trait]
impl Lock for Far {
    async fn acquire(&mut self) -> Result {
        self.pair().await.map(drop)
    }

    async fn release(&mut self) -> Result {
        Ok(())
    }

    async fn pair(&mut self) -> Result<(u64, u64)> {
        let answer = self.talk.lock().await.ask(&format!("pair {}", self.name), START).await?;
        let mut times = answer.first().map(|line| line.split(' ').map(str::parse)).into_iter().flatten();
        match (times.next(), times.next()) {
            (Some(acquire), Some(release)) => Ok((acquire?, release?)),
            _ => Err(Failure::new("the peer did not say how long")),
        }
    }
}

#[cfg(all(test, feature = "memory"))]
mod tests {
    use super::*;
    use crate::{
        record::{Figures, Outcome},
        run::{Plan, Silent},
        workload::{Arena, Entrant, throughput},
    };

    /// Writes down what it is told.
    struct Writing(std::path::PathBuf);

    #[async_trait]
    impl Contender for Writing {
        fn who(&self) -> record::Contender {
            super::super::rust("writing", Kind::Peer, "1")
        }

        async fn open(&self, _: &Place) -> Result<Arc<dyn Client>> {
            let mut command = Command::new("sh");
            let script = "echo .; while read -r line; do echo \"$line\" >> \"$0\"; echo 7; echo .; done";
            command.args(["-c", script]).arg(&self.0);
            Ok(Arc::new(Foreign::start(command, tempfile::tempdir()?).await?))
        }
    }

    #[tokio::test]
    async fn a_peer_in_another_language_warms_up_for_a_tenth_of_the_span() {
        let folder = tempfile::tempdir().unwrap();
        let told = folder.path().join("told");
        let place = Place::new("memory:").unwrap();
        let mut plan = Plan::new(["memory:"]);
        (plan.rounds, plan.seconds) = (2, 0.5);
        let entrants = vec![Entrant::new(Box::new(Writing(told.clone())), &place).await];
        let arena = Arena { plan: &plan, place: &place, processes: Vec::new(), entrants, progress: &Silent };
        let findings = throughput(&arena).await;
        let Outcome::Measured(Figures::Throughput { pairs_per_second, .. }) = &findings[0].1 else {
            panic!("{findings:?}");
        };
        // Of the span alone: seven pairs in half a second.
        assert_eq!(*pairs_per_second, 14.0);
        let told = fs::read_to_string(told).unwrap();
        let spans: Vec<_> = told.lines().filter_map(|line| line.rsplit(' ').next()).collect();
        assert_eq!(spans, ["0.05", "0.5", "0.05", "0.5"], "{told}");
    }
}
