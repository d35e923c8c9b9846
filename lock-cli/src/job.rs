//! COMMAND under the lock: watched until it ends, ended when the lock is lost.

use std::{io, pin::pin, process::Command, time::Duration};

use polylock::{Clock, Guard, Loss, Moment, SystemClock};
use rustix::{
    io::{FdFlags, fcntl_setfd},
    process::Signal,
};

use crate::{
    args::Run,
    command::{Change, Group, Signals, Stop, Terminal, is_ending},
    exit::{Failure, INTERNAL},
    location,
    server::Server,
};

/// How often to look whether a group is empty: nobody tells of the end of processes that are not our
/// children.
const LOOK: Duration = Duration::from_millis(20);

/// COMMAND, running.
#[derive(Debug)]
pub(crate) struct Job<'a> {
    guard: &'a Guard,
    grace: Duration,
    group: Group,
    terminal: Terminal,
    signals: Signals,
    clock: SystemClock,
}

/// How it ended.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    /// By itself, with this exit code, while the lock was held.
    Exit(u8),
    /// The lock was lost before.
    Lost(Loss),
}

impl<'a> Job<'a> {
    /// Starts COMMAND.
    pub(crate) fn start(
        args: &Run,
        server: &Server,
        guard: &'a Guard,
        mut signals: Signals,
    ) -> Result<Self, Failure> {
        let failed = |error: io::Error| {
            Failure::new(INTERNAL, format!("{} is not started: {error}", args.command[0].display()))
        };
        signals.add_others().map_err(failed)?;
        let mut group = Group::new().map_err(failed)?;
        let mut terminal = Terminal::open();
        terminal.lend_at_start(group.id());
        if let Some(liveness) = &server.liveness {
            // COMMAND and all that it starts keep it open, and so the lock from being taken over at once
            // when we are killed: as with flock(1).
            fcntl_setfd(liveness, FdFlags::empty()).map_err(|error| failed(error.into()))?;
        }
        group.start(&args.command, |command| environment(command, args, guard)).map_err(failed)?;
        let clock = SystemClock::new()?;
        Ok(Self { guard, grace: server.grace, group, terminal, signals, clock })
    }

    /// Watches COMMAND until nothing of it is left that must not outlive the lock.
    pub(crate) async fn supervise(mut self) -> io::Result<End> {
        let end = self.watch().await?;
        self.terminal.take_back();
        Ok(end)
    }

    async fn watch(&mut self) -> io::Result<End> {
        let mut lost = pin!(self.guard.lost());
        let mut deadline = self.deadline();
        let mut asked_to_end = false;
        let loss = loop {
            tokio::select! {
                // Before a stopped COMMAND is continued, it is known whether the lock is still held.
                biased;
                loss = &mut lost => break loss,
                () = self.clock.sleep_until(deadline) => {
                    if !self.guard.is_held() {
                        break lost.await;
                    }
                    // Renewals have moved it.
                    deadline = self.deadline();
                }
                change = self.group.changed() => match change? {
                    Change::Ended(code) => {
                        if asked_to_end || code > 128 {
                            self.clear(self.clock.now() + self.grace).await?;
                        }
                        let held = self.guard.is_held();
                        return Ok(if held { End::Exit(code) } else { End::Lost(lost.await) });
                    }
                    Change::Stopped(signal) => {
                        tracing::info!(?signal, "COMMAND was stopped");
                        if self.terminal.stopped(signal, self.group.id()) == Stop::Continue {
                            self.group.signal(Signal::CONT);
                        }
                    }
                },
                signal = self.signals.next() => {
                    if signal == Signal::CONT {
                        self.terminal.resumed(self.group.id());
                    }
                    asked_to_end |= is_ending(signal);
                    self.group.signal(signal);
                }
            }
        };
        self.stop(deadline).await?;
        Ok(End::Lost(loss))
    }

    /// Until when the lock is held, as far as is known.
    fn deadline(&self) -> Moment {
        self.clock.now() + self.guard.remaining()
    }

    /// Ends the group after a loss: TERM, and KILL before the grace is over. It began at `deadline`, which
    /// is past already if we were stopped meanwhile.
    async fn stop(&mut self, deadline: Moment) -> io::Result<()> {
        let kill_at = deadline.min(self.clock.now()) + self.grace.mul_f64(0.75);
        tracing::info!("the lock is lost: COMMAND is ended");
        if self.clock.now() < kill_at {
            self.group.signal(Signal::TERM);
            self.group.signal(Signal::CONT);
        }
        self.clear(kill_at).await
    }

    /// Waits until the group is empty; kills what is left of it at a moment.
    async fn clear(&mut self, kill_at: Moment) -> io::Result<()> {
        let mut killed = false;
        while !self.group.is_empty() {
            let left = kill_at.saturating_since(self.clock.now());
            if left.is_zero() && !killed {
                self.group.signal(Signal::KILL);
                killed = true;
            }
            let pause = if killed { LOOK } else { LOOK.min(left) };
            tokio::select! {
                change = self.group.changed() => drop(change?),
                signal = self.signals.next() => self.group.signal(signal),
                () = tokio::time::sleep(pause) => {}
            }
        }
        Ok(())
    }
}

fn environment(command: &mut Command, args: &Run, guard: &Guard) {
    command.env("POLYLOCK_NAME", &args.name);
    command.env("POLYLOCK_FENCING_TOKEN", guard.fencing_token().to_string());
    if let Some(instead) = location::withheld() {
        command.env(location::URL, instead);
    }
}
