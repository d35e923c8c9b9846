//! Processes of a benchmark: this program, started again.

use std::{
    ops::Range,
    process::{ExitCode, Stdio},
    sync::Arc,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines, Stdin},
    process::{ChildStdin, ChildStdout, Command},
    time::timeout,
};

use crate::{
    contender::{self, Client},
    failure::{Failure, Result},
    measure::now,
    place::Place,
    workload::{Hold, contend, hold_many, hold_one},
};

/// The argument that makes a program that calls [`reexecuted`] a child.
const CHILD: &str = "--polylock-bench-child";

/// To be called first by a program that calls [`run`](crate::run): if this process was started to be one of
/// a benchmark's, it does its part and returns an exit code.
#[must_use]
pub fn reexecuted() -> Option<ExitCode> {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    if arguments != [CHILD] {
        return None;
    }
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let Ok(runtime) = runtime else { return Some(ExitCode::FAILURE) };
    let done = runtime.block_on(serve());
    runtime.shutdown_background();
    Some(if done.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What a child has to do.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    Contend { contender: String, name: String, spare: String, waiters: Range<usize>, warm_up: Duration },
    HoldMany { locks: usize, ttl: Duration, span: Duration },
    HoldOne { ttl: Duration },
}

/// What a child says, a line each.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Word {
    Ready,
    Said(String),
    Holds(Vec<Hold>),
    Held {
        bytes_per_lock: f64,
        cpu: Duration,
        worst_lateness: Duration,
        lost: usize,
    },
    /// On the clock that counts suspend, since its start.
    Lease {
        end: Duration,
    },
    Failed(String),
}

/// A child process; killed when dropped.
pub(crate) struct Child {
    process: tokio::process::Child,
    orders: ChildStdin,
    words: Lines<BufReader<ChildStdout>>,
}

impl Child {
    /// Its URL, which may hold a password, goes through its standard input.
    pub(crate) async fn start(place: &Place, order: Order) -> Result<Self> {
        let mut process = Command::new(std::env::current_exe()?)
            .arg(CHILD)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let none = || Failure::new("a child without pipes");
        let (orders, words) =
            (process.stdin.take().ok_or_else(none)?, process.stdout.take().ok_or_else(none)?);
        let mut child = Self { process, orders, words: BufReader::new(words).lines() };
        child.line(&serde_json::to_string(&(place, order))?).await?;
        Ok(child)
    }

    /// Tells it a moment, or just to go on.
    pub(crate) async fn tell(&mut self, moment: u64) -> Result {
        self.line(&moment.to_string()).await
    }

    async fn line(&mut self, text: &str) -> Result {
        self.orders.write_all(format!("{text}\n").as_bytes()).await?;
        Ok(self.orders.flush().await?)
    }

    /// The next word, within a time.
    pub(crate) async fn word(&mut self, patience: Duration) -> Result<Word> {
        let line = timeout(patience, self.words.next_line()).await;
        let line = line.map_err(|_| Failure::new(format!("a child said nothing for {patience:?}")))??;
        match serde_json::from_str(&line.ok_or_else(|| Failure::new("a child ended"))?)? {
            Word::Failed(text) => Err(Failure::new(text)),
            word => Ok(word),
        }
    }

    /// The next word, if it has said one.
    pub(crate) async fn try_word(&mut self) -> Result<Option<Word>> {
        match timeout(Duration::from_millis(1), self.words.next_line()).await {
            Ok(Ok(Some(line))) => Ok(Some(serde_json::from_str(&line)?)),
            Ok(Ok(None)) => Err(Failure::new("a child ended")),
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Ok(None),
        }
    }

    /// Waits until it is ready, or says what is expected.
    pub(crate) async fn hear(&mut self, expected: &str) -> Result {
        match self.word(Duration::from_secs(60)).await? {
            Word::Ready if expected == "ready" => Ok(()),
            Word::Said(text) if text == expected => Ok(()),
            other => Err(Failure::new(format!("a child said {other:?}, not {expected}"))),
        }
    }

    /// SIGKILL; when this returns, it is dead.
    pub(crate) async fn kill(&mut self) -> Result {
        Ok(self.process.kill().await?)
    }
}

/// The parent, as a child sees it.
pub(crate) struct Parent {
    orders: Lines<BufReader<Stdin>>,
    words: tokio::io::Stdout,
}

impl Parent {
    pub(crate) async fn say(&mut self, word: &Word) -> Result {
        self.words.write_all(format!("{}\n", serde_json::to_string(word)?).as_bytes()).await?;
        Ok(self.words.flush().await?)
    }

    /// The next number that it tells.
    pub(crate) async fn told(&mut self) -> Result<u64> {
        let line = self.orders.next_line().await?;
        Ok(line.ok_or_else(|| Failure::new("the parent is gone"))?.trim().parse()?)
    }
}

async fn serve() -> Result {
    let orders = BufReader::new(tokio::io::stdin()).lines();
    let mut parent = Parent { orders, words: tokio::io::stdout() };
    let line = parent.orders.next_line().await?;
    let (place, order): (Place, Order) =
        serde_json::from_str(&line.ok_or_else(|| Failure::new("no order"))?)?;
    let done = obey(&place, &mut parent, order).await;
    if let Err(failure) = &done {
        parent.say(&Word::Failed(place.scrub(failure.text()))).await?;
    }
    done
}

async fn obey(place: &Place, parent: &mut Parent, order: Order) -> Result {
    match order {
        Order::Contend { contender, name, spare, waiters, warm_up } => {
            let client = contender::named(place.backend(), &contender)?.open(place).await?;
            warm(&client, &name, &spare, waiters.clone(), warm_up).await?;
            parent.say(&Word::Ready).await?;
            let end = parent.told().await?;
            let holds = contend(client.clone(), &name, waiters, end).await?;
            client.close().await;
            parent.say(&Word::Holds(holds)).await
        }
        Order::HoldMany { locks, ttl, span } => hold_many(place, parent, locks, ttl, span).await,
        Order::HoldOne { ttl } => hold_one(place, parent, ttl).await,
    }
}

/// What is slow once in a process, before the start: connections, prepared statements, and code that is compiled
/// while it runs.
async fn warm(
    client: &Arc<dyn Client>,
    name: &str,
    spare: &str,
    waiters: Range<usize>,
    span: Duration,
) -> Result {
    let mut lock = client.lock(name)?;
    lock.acquire().await?;
    lock.release().await?;
    contend(client.clone(), spare, waiters, now() + span.as_nanos() as u64).await.map(drop)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use async_trait::async_trait;

    use super::*;
    use crate::contender::Lock;

    /// Writes down the names that are locked, and grants all.
    #[derive(Default)]
    struct Writing(Mutex<Vec<String>>);

    struct Granted;

    #[async_trait]
    impl Client for Writing {
        fn lock(&self, name: &str) -> Result<Box<dyn Lock>> {
            self.0.lock().unwrap().push(name.into());
            Ok(Box::new(Granted))
        }
    }

    #[async_trait]
    impl Lock for Granted {
        async fn acquire(&mut self) -> Result {
            tokio::time::sleep(Duration::from_millis(1)).await;
            Ok(())
        }

        async fn release(&mut self) -> Result {
            Ok(())
        }
    }

    #[tokio::test]
    async fn a_child_contends_on_a_spare_name_before_the_start() {
        let writing = Arc::new(Writing::default());
        let client: Arc<dyn Client> = writing.clone();
        let (begin, span) = (now(), Duration::from_millis(100));
        warm(&client, "name", "spare", 4..8, span).await.unwrap();
        assert!(now() - begin >= span.as_nanos() as u64);
        assert_eq!(*writing.0.lock().unwrap(), ["name", "spare", "spare", "spare", "spare"]);
    }
}
