//! `polylock run`: takes the lock, runs COMMAND under it, releases.

use std::{convert::Infallible, time::Duration};

use polylock::{Guard, Release};

use crate::{
    args::{Patience, Run},
    command::Signals,
    exit::{self, Failure},
    job::{End, Job},
    progress::Spinner,
    server::Server,
};

/// How long leaving a queue, or a release that got no answer, may hold up the exit.
const LEAVING: Duration = Duration::from_secs(1);

pub(crate) fn run(args: &Run, verbose: u8) -> Result<u8, Failure> {
    // COMMAND is spawned by the thread that runs this, and is killed at its end: it is the main one.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::internal("no runtime could be made", &error))?;
    let result = runtime.block_on(connect_and_work(args, verbose));
    // A look at a file system that hangs must not hold up the exit.
    runtime.shutdown_background();
    result
}

async fn connect_and_work(args: &Run, verbose: u8) -> Result<u8, Failure> {
    let mut signals =
        Signals::ending().map_err(|error| Failure::internal("signals cannot be caught", &error))?;
    let server = tokio::select! {
        server = Server::connect(args) => server?,
        signal = signals.next() => return Ok(exit::signalled(signal.as_raw())),
    };
    let result = work(args, verbose, &server, signals).await;
    // What was broken off is cleaned up in the background, which ends with the process.
    for name in server.locks.close(LEAVING).await {
        tracing::warn!(%name, "not released: its lease has to run out");
    }
    result
}

async fn work(args: &Run, verbose: u8, server: &Server, mut signals: Signals) -> Result<u8, Failure> {
    let guard = tokio::select! {
        guard = acquire(args, server) => match guard? {
            Some(guard) => guard,
            None => return Ok(busy(args)),
        },
        signal = signals.next() => return Ok(exit::signalled(signal.as_raw())),
        never = show_waiting(&args.name, verbose) => match never {},
    };
    let token = guard.fencing_token();
    tracing::info!(name = %args.name, %token, "acquired");
    let end = Job::start(args, server, &guard, signals)?.supervise().await;
    let end = end.map_err(|error| Failure::internal("COMMAND cannot be watched", &error));
    conclude(args, guard, end?).await
}

async fn acquire(args: &Run, server: &Server) -> Result<Option<Guard>, Failure> {
    let lock = server.locks.lock(&args.name)?;
    Ok(match args.patience() {
        Patience::None => lock.try_acquire().await?,
        Patience::Within(patience) => lock.acquire_within(patience).await?,
        Patience::Endless => Some(lock.acquire().await?),
    })
}

/// As flock(1) is: silent.
fn busy(args: &Run) -> u8 {
    tracing::info!(name = %args.name, "another holds the lock");
    let code = if args.patience() == Patience::None { exit::BUSY } else { exit::TIMED_OUT };
    args.conflict_exit_code.unwrap_or(code)
}

async fn show_waiting(name: &str, verbose: u8) -> Infallible {
    tokio::time::sleep(Spinner::DELAY).await;
    tracing::info!(name, "waiting");
    // A spinner and messages would write over each other.
    let _spinner = (verbose == 0).then(|| Spinner::start(name));
    std::future::pending().await
}

/// Releases the lock and decides on the exit code.
async fn conclude(args: &Run, guard: Guard, end: End) -> Result<u8, Failure> {
    let lost = |loss| Failure::new(exit::LOST, format!("the lock {:?} was lost: {loss}", args.name));
    let released = guard.release().await;
    let code = match end {
        End::Lost(loss) => return Err(lost(loss)),
        End::Exit(code) => code,
    };
    match released {
        Ok(Release::Released) => tracing::info!(name = %args.name, code, "released"),
        // COMMAND's work may have overlapped with another's. That outweighs its success, but not the
        // code of a failure, which calls for attention by itself.
        Ok(Release::AlreadyLost(loss)) if code == 0 => return Err(lost(loss)),
        Ok(Release::AlreadyLost(loss)) => drop(lost(loss).report()),
        Ok(other) => tracing::warn!(?other, "released in a way that is not known here"),
        Err(error) => {
            let name = &args.name;
            let why = exit::chain(&error);
            exit::complain(&format!(
                "the release of {name:?} is not confirmed; its lease may have to run out: {why}"
            ));
        }
    }
    Ok(code)
}
