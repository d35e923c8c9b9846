//! Clients in processes of their own, which can be killed and stopped.

pub(crate) mod child;
mod words;

use std::{
    env,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    sync::Arc,
    thread,
    time::Duration,
};

use lock_core::{FencingToken, Moment, Name};
use rustix::process::Signal;
use tokio::sync::mpsc;

pub(crate) use words::{Answer, Order, Setting};

use crate::{
    case::Failure,
    history::{History, HoldId},
    process::{self, PARENT, ROLE},
};

/// A client in a process of its own, with one guard at a time.
#[derive(Debug)]
pub(crate) struct Holder {
    child: Child,
    orders: ChildStdin,
    answers: mpsc::UnboundedReceiver<Answer>,
    history: Arc<History>,
    /// The name that was asked for last, and its hold if it was granted.
    asked: Option<Name>,
    hold: Option<HoldId>,
}

/// What a child says of its guard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grip {
    pub(crate) held: bool,
    pub(crate) remaining: Duration,
    pub(crate) token: FencingToken,
    /// When it was asked, on the clock of all processes.
    pub(crate) at: Moment,
}

impl Holder {
    /// Starts the process; returns when it has connected.
    pub(crate) async fn start(url: &str, ttl: Duration, history: Arc<History>) -> Result<Self, Failure> {
        let setting = Setting { url: url.into(), ttl };
        let mut command = Command::new(env::current_exe()?);
        command.env(ROLE, serde_json::to_string(&setting)?).env(PARENT, std::process::id().to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut child = process::spawn(command)?;
        let (Some(orders), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Failure::new("the child has no pipes"));
        };
        let (sender, answers) = mpsc::unbounded_channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let answer = serde_json::from_str(&line).unwrap_or(Answer::Failed { error: line });
                if sender.send(answer).is_err() {
                    break;
                }
            }
        });
        let mut holder = Self { child, orders, answers, history, asked: None, hold: None };
        match holder.answer().await? {
            Answer::Ready => Ok(holder),
            other => Err(Failure::new(format!("the child did not connect: {other:?}"))),
        }
    }

    /// Orders it to wait for the lock; [`granted`](Self::granted) tells when it has it.
    pub(crate) fn ask(&mut self, name: &Name) -> Result<(), Failure> {
        self.asked = Some(name.clone());
        self.order(&Order::Acquire { name: name.as_str().into() })
    }

    /// Waits until what was [asked](Self::ask) for is granted.
    pub(crate) async fn granted(&mut self) -> Result<Grip, Failure> {
        self.grip().await
    }

    /// Waits for the lock.
    pub(crate) async fn acquire(&mut self, name: &Name) -> Result<Grip, Failure> {
        self.ask(name)?;
        self.granted().await
    }

    /// Orders it to say what it knows of its guard; [`granted`](Self::granted) gives the answer. A
    /// stopped process answers first thing when it goes on.
    pub(crate) fn look(&mut self) -> Result<(), Failure> {
        self.order(&Order::Look)
    }

    /// Releases the guard; whether it was still held.
    pub(crate) async fn release(&mut self) -> Result<bool, Failure> {
        self.order(&Order::Release)?;
        match self.answer().await? {
            Answer::Released { called, was_held } => {
                if let Some(hold) = self.hold.take() {
                    self.history.ended(hold, Moment::from_start(called));
                }
                Ok(was_held)
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Orders it to add one to the number in a file, so many times, each under the lock and with a gap
    /// between reading and writing; [`done`](Self::done) tells when it has.
    pub(crate) fn increment(&mut self, name: &Name, file: &Path, times: u32) -> Result<(), Failure> {
        self.order(&Order::Increment { name: name.as_str().into(), file: file.into(), times })
    }

    /// Waits until the increments are done.
    pub(crate) async fn done(&mut self) -> Result<(), Failure> {
        match self.answer().await? {
            Answer::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// Kills the process (SIGKILL).
    pub(crate) fn kill(&mut self) -> Result<(), Failure> {
        if let Some(hold) = self.hold.take() {
            self.history.ended(hold, Moment::now());
        }
        Ok(process::kill(&mut self.child)?)
    }

    /// Stops the process where it is (SIGSTOP).
    pub(crate) fn stop(&self) -> Result<(), Failure> {
        Ok(process::signal(&self.child, Signal::STOP)?)
    }

    /// Lets it go on (SIGCONT).
    pub(crate) fn resume(&self) -> Result<(), Failure> {
        Ok(process::signal(&self.child, Signal::CONT)?)
    }

    async fn grip(&mut self) -> Result<Grip, Failure> {
        match self.answer().await? {
            Answer::Grip { held, remaining, token, at, new } => {
                let (token, at) = (FencingToken::new(token), Moment::from_start(at));
                if new {
                    let name = self.asked.as_ref().map_or("", Name::as_str);
                    let who = format!("process {}", self.child.id());
                    self.hold = Some(self.history.acquired((name, &who), token, at, at + remaining));
                } else if let Some(hold) = self.hold {
                    if held {
                        self.history.confirmed(hold, at + remaining);
                    } else {
                        self.history.ended(hold, at);
                    }
                }
                Ok(Grip { held, remaining, token, at })
            }
            other => Err(unexpected(&other)),
        }
    }

    fn order(&mut self, order: &Order) -> Result<(), Failure> {
        let line = serde_json::to_string(order)? + "\n";
        Ok(self.orders.write_all(line.as_bytes())?)
    }

    async fn answer(&mut self) -> Result<Answer, Failure> {
        self.answers.recv().await.ok_or_else(|| Failure::new("the child is gone"))
    }
}

fn unexpected(answer: &Answer) -> Failure {
    Failure::new(format!("the child says {answer:?}"))
}

impl Drop for Holder {
    fn drop(&mut self) {
        if let Err(error) = process::kill(&mut self.child) {
            eprintln!("a child could not be ended: {error}");
        }
    }
}
