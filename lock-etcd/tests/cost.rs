//! What waiting costs the server, counted by the server: every message of gRPC.
// Helpers are part of the tests, but the lint does not know that.
#![allow(clippy::unwrap_used)]

mod support;

use std::time::{Duration, Instant};

use lock_core::{Backend, Guard, Locks};
use support::{PATIENCE, Server, busy, claim, held, soon};
use tokio::task::JoinHandle;

/// The usual ttl.
const TTL: Duration = Duration::from_secs(30);
/// Longer than the third of a ttl after which holders renew and waiters ask again: it has one of each.
const SPAN: Duration = Duration::from_secs(11);

/// One process: it has a connection of its own.
async fn process(server: &Server) -> Locks {
    Locks::new(server.backend().await).unwrap()
}

async fn hold(locks: &Locks) -> Guard {
    locks.lock("a").unwrap().acquire().await.unwrap()
}

fn wait(locks: &Locks) -> JoinHandle<()> {
    let lock = locks.lock("a").unwrap();
    tokio::spawn(async move {
        lock.acquire().await.unwrap().release().await.unwrap();
    })
}

/// Waits until this holds.
async fn until(what: &str, holds: impl Fn() -> bool) {
    let since = Instant::now();
    while !holds() {
        assert!(since.elapsed() < PATIENCE, "not seen: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// How many messages a second come in within the span, of how many in all.
async fn rate(server: &Server) -> (f64, u64) {
    let before = server.messages();
    tokio::time::sleep(SPAN).await;
    let messages = server.messages() - before;
    (messages as f64 / SPAN.as_secs_f64(), messages)
}

/// The next in line holds by what the watch has told.
#[tokio::test]
async fn a_hand_over_is_one_request() {
    let server = Server::start(&[]);
    let (one, other) = (server.backend().await, server.backend().await);
    let (first, second) = (claim("a"), claim("a"));
    held(&one, &first).await;
    let told = busy(&other, &second).await;
    let before = server.messages();
    one.release(&first).await.unwrap();
    soon("the wake", told.wake.unwrap()).await;
    held(&other, &second).await;
    assert_eq!(server.messages() - before, 1);
}

#[tokio::test]
async fn a_hundred_waiting_tasks_cost_less_than_two_requests_a_second() {
    let server = Server::start(&[]);
    let (holder, waiters) = (process(&server).await, process(&server).await);
    let guard = hold(&holder).await;
    let waiting: Vec<_> = (0..100).map(|_| wait(&waiters)).collect();
    until("all wait", || waiters.statistics().waiting == 100 && waiters.statistics().acquire.answers == 1)
        .await;
    let (rate, messages) = rate(&server).await;
    println!("{messages} requests in {SPAN:?}");
    assert!(rate < 2.0, "{rate} requests a second");
    assert!(holder.statistics().renewals > 0, "no renewal in the span");
    assert!(waiters.statistics().acquire.calls > 1, "nobody asked again in the span");
    guard.release().await.unwrap();
    for task in waiting {
        task.await.unwrap();
    }
}

/// Each keeps its place with one request at every third of its ttl.
#[tokio::test]
async fn waiting_processes_cost_a_request_each_third_of_their_ttl() {
    const PROCESSES: u32 = 20;
    let server = Server::start(&[]);
    let holder = process(&server).await;
    let guard = hold(&holder).await;
    let (mut processes, mut waiting) = (Vec::new(), Vec::new());
    for _ in 0..PROCESSES {
        let locks = process(&server).await;
        waiting.push(wait(&locks));
        until("it waits", || locks.statistics().acquire.answers == 1).await;
        processes.push(locks);
    }
    let (rate, messages) = rate(&server).await;
    println!("{messages} requests in {SPAN:?}");
    let most = f64::from(PROCESSES) * 3.0 / TTL.as_secs_f64() + 1.0;
    assert!(rate <= most, "{rate} requests a second are more than {most}");
    assert!(processes.iter().all(|locks| locks.statistics().acquire.calls > 1), "one did not ask again");
    guard.release().await.unwrap();
    for task in waiting {
        task.await.unwrap();
    }
}
