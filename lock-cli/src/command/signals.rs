//! The signals that end a wait, or are passed on to COMMAND.

use std::{
    fs, future, io,
    task::{Context, Poll},
};

use rustix::process::Signal;
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

/// Signals that would end us, and are passed on to COMMAND once it runs.
const ENDING: [Signal; 6] =
    [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT, Signal::USR1, Signal::USR2];
/// Signals that are passed on, and otherwise keep their meaning while there is no COMMAND.
const OTHERS: [Signal; 3] = [Signal::TSTP, Signal::CONT, Signal::WINCH];

/// The signals that we catch.
#[derive(Debug)]
pub(crate) struct Signals(Vec<(Signal, Stream)>);

impl Signals {
    /// Catches what would end us, except for signals that whoever started us wants ignored: a command
    /// under `nohup` is to survive HUP, with us in between as without.
    pub(crate) fn ending() -> io::Result<Self> {
        let ignored = ignored();
        let wanted = |signal: &Signal| ignored & (1 << (signal.as_raw() - 1)) == 0;
        Ok(Self(ENDING.into_iter().filter(wanted).map(catch).collect::<io::Result<_>>()?))
    }

    /// Catches the others too, from now on.
    pub(crate) fn add_others(&mut self) -> io::Result<()> {
        for signal in OTHERS {
            self.0.push(catch(signal)?);
        }
        Ok(())
    }

    /// The next signal that came in.
    ///
    /// # Cancel safety
    ///
    /// No signal is lost.
    pub(crate) async fn next(&mut self) -> Signal {
        future::poll_fn(|context| self.poll(context)).await
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Signal> {
        for (signal, stream) in &mut self.0 {
            if let Poll::Ready(Some(())) = stream.poll_recv(context) {
                return Poll::Ready(*signal);
            }
        }
        Poll::Pending
    }
}

/// Whether the signal asks a command to end.
pub(crate) fn is_ending(signal: Signal) -> bool {
    [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT].contains(&signal)
}

fn catch(signal_: Signal) -> io::Result<(Signal, Stream)> {
    Ok((signal_, signal(SignalKind::from_raw(signal_.as_raw()))?))
}

/// The signals that are ignored already, as bits from 1; none where the system does not tell.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
