//! For the tests that a backend has beside the suite: what they ask it, and how they wait. All of these panic if
//! they do not see what they wait for.

use std::{
    future::Future,
    pin::pin,
    process::Child,
    task::{Context, Waker},
    time::{Duration, Instant},
};

use lock_core::{Attempt, Backend, Busy, Claim, Grant, Result};
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::{sleep, timeout};

use crate::process::wait_until_stopped;

/// Longer than anything here takes; a test that needs it has failed.
pub const PATIENCE: Duration = Duration::from_secs(30);

const PAUSE: Duration = Duration::from_millis(10);

/// The grant of a claim that must get the lock at once.
///
/// # Panics
///
/// For any other answer.
pub async fn held(backend: &impl Backend, claim: &Claim) -> Grant {
    match backend.acquire(claim).await {
        Ok(Attempt::Held(grant)) => grant,
        other => panic!("not granted: {other:?}"),
    }
}

/// What a claim hears that must find the lock busy.
///
/// # Panics
///
/// For any other answer.
pub async fn busy(backend: &impl Backend, claim: &Claim) -> Busy {
    match backend.acquire(claim).await {
        Ok(Attempt::Busy(busy)) => busy,
        other => panic!("not busy: {other:?}"),
    }
}

/// Asks until the claim is granted, whatever goes wrong meanwhile.
///
/// # Panics
///
/// After [`PATIENCE`], or for an error that asking again cannot mend.
pub async fn held_at_last(backend: &impl Backend, claim: &Claim) -> Grant {
    let since = Instant::now();
    loop {
        if let Attempt::Held(grant) = until_answered(|| backend.acquire(claim)).await {
            return grant;
        }
        assert!(since.elapsed() < PATIENCE, "never granted");
        sleep(PAUSE).await;
    }
}

/// Repeats a verb until the server has answered it, as core does.
///
/// # Panics
///
/// As [`held_at_last`].
pub async fn until_answered<T, F: Future<Output = Result<T>>>(mut verb: impl FnMut() -> F) -> T {
    let since = Instant::now();
    loop {
        match timeout(Duration::from_millis(500), verb()).await {
            Ok(Ok(answer)) => return answer,
            Ok(Err(failure)) => assert!(failure.is_transient(), "{failure:?}"),
            Err(_) => {}
        }
        assert!(since.elapsed() < PATIENCE, "never answered");
        sleep(PAUSE).await;
    }
}

/// Polls a verb once, so that its request is under way, and drops it, mostly before its answer: on a busy machine even
/// that may be there already, and a timeout would look later still.
pub fn abandon<T>(verb: impl Future<Output = T>) {
    let _ = pin!(verb).poll(&mut Context::from_waker(Waker::noop()));
}

/// Stops a process; when this returns, none of its threads runs.
///
/// # Panics
///
/// If it is gone.
pub fn pause(process: &Child) {
    tell(process, Signal::STOP);
    wait_until_stopped(process);
}

/// Lets a process go on after [`pause`].
///
/// # Panics
///
/// If it is gone.
pub fn resume(process: &Child) {
    tell(process, Signal::CONT);
}

fn tell(process: &Child, signal: Signal) {
    kill_process(Pid::from_child(process), signal).expect("the process is there");
}

/// Waits until something is so.
///
/// # Panics
///
/// After [`PATIENCE`].
pub async fn until(what: &str, mut so: impl FnMut() -> bool) {
    let since = Instant::now();
    while !so() {
        assert!(since.elapsed() < PATIENCE, "not seen: {what}");
        sleep(PAUSE).await;
    }
}
