//! What the server is asked, counted by the server: the commands inside scripts too.

// Helpers are part of the tests, but the lint does not know that.
#![allow(clippy::unwrap_used)]

mod support;

use std::time::{Duration, Instant};

use lock_core::{Backend, Locks, Options};
use redis::Connection;
use support::{Server, ask, claim, held, until};

/// Calls by command since the statistics were reset.
fn calls(admin: &mut Connection) -> Vec<(String, u32)> {
    let statistics: String = ask(admin, "INFO commandstats");
    let lines = statistics.lines().filter_map(|line| line.strip_prefix("cmdstat_"));
    lines
        .map(|line| {
            let (command, rest) = line.split_once(":calls=").unwrap();
            (command.to_owned(), rest.split(',').next().unwrap().parse().unwrap())
        })
        .filter(|(command, _)| command != "config|resetstat")
        .collect()
}

#[tokio::test]
async fn an_uncontended_pair_is_two_requests() {
    let server = Server::start(&[]);
    let (backend, mut admin) = (server.backend().await, server.admin());
    let warm = claim("a");
    held(&backend, &warm).await;
    backend.release(&warm).await.unwrap();
    ask::<()>(&mut admin, "CONFIG RESETSTAT");
    let claim = claim("a");
    held(&backend, &claim).await;
    backend.release(&claim).await.unwrap();
    let calls = calls(&mut admin);
    let of = |command: &str| calls.iter().find(|(name, _)| name == command).map(|(_, calls)| *calls);
    assert_eq!(of("evalsha"), Some(2), "{calls:?}");
    // Two looks at the lock and at its queue, one at the counter; what a script reads once it does not read
    // again.
    assert_eq!(
        (of("get"), of("lindex"), of("time"), of("set"), of("del")),
        (Some(3), Some(2), Some(1), Some(2), Some(1)),
        "{calls:?}"
    );
    assert_eq!((of("eval"), of("subscribe"), of("publish")), (None, None, None), "{calls:?}");
}

#[tokio::test]
async fn a_hundred_waiting_tasks_cost_less_than_two_commands_a_second() {
    let server = Server::start(&[]);
    let mut admin = server.admin();
    let (here, there) = (server.backend().await, server.backend().await);
    // The holder renews every ten seconds; the waiters are another process's.
    let (holder, waiters) = (Locks::new(here).unwrap(), Locks::new(there).unwrap());
    let guard = holder.lock("a").unwrap().acquire().await.unwrap();
    let waiting: Vec<_> = (0..100)
        .map(|_| {
            let lock = waiters.lock("a").unwrap();
            tokio::spawn(async move { lock.acquire().await.unwrap().release().await.unwrap() })
        })
        .collect();
    // One of them asks for all, and has asked before the counting begins.
    let all_wait = || waiters.statistics().waiting == 100 && waiters.statistics().acquire.answers == 1;
    until("all wait", all_wait).await;
    ask::<()>(&mut admin, "CONFIG RESETSTAT");
    let since = Instant::now();
    tokio::time::sleep(Duration::from_secs(11)).await;
    until("a renewal", || holder.statistics().renewals > 0).await;
    let (span, calls) = (since.elapsed(), calls(&mut admin));
    let total: u32 = calls.iter().map(|(_, calls)| calls).sum();
    assert!(f64::from(total) / span.as_secs_f64() < 2.0, "{calls:?}");
    assert!(calls.iter().any(|(command, _)| command == "pexpire"), "no renewal in the span: {calls:?}");
    guard.release().await.unwrap();
    for task in waiting {
        task.await.unwrap();
    }
    println!("{total} commands in {span:?}: {calls:?}");
}

/// Requests, that is; each runs a handful of commands on the server.
#[tokio::test]
async fn waiting_processes_keep_their_places_and_no_more() {
    let server = Server::start(&[]);
    let mut admin = server.admin();
    let options = || Options::default().with_ttl(Duration::from_secs(6));
    let locks = |backend| Locks::with_options(backend, options()).unwrap();
    let holder = locks(server.backend().await);
    let guard = holder.lock("a").unwrap().acquire().await.unwrap();
    let mut waiting = Vec::new();
    for _ in 0..8 {
        let waiter = locks(server.backend().await);
        let lock = waiter.lock("a").unwrap();
        waiting.push(tokio::spawn(async move { lock.acquire().await.unwrap().release().await.unwrap() }));
        until("it waits", || waiter.statistics().acquire.answers > 0).await;
    }
    ask::<()>(&mut admin, "CONFIG RESETSTAT");
    let span = Duration::from_secs(12);
    tokio::time::sleep(span).await;
    let calls = calls(&mut admin);
    let requests = calls.iter().find(|(command, _)| command == "evalsha").unwrap().1;
    // Each of the eight, and the holder who renews, three times in a ttl.
    assert!(f64::from(requests) / span.as_secs_f64() <= 8.0 * 3.0 / 6.0 + 1.0, "{calls:?}");
    assert!(calls.iter().all(|(command, _)| command != "publish"), "{calls:?}");
    guard.release().await.unwrap();
    for task in waiting {
        task.await.unwrap();
    }
    println!("{requests} requests in {span:?}: {calls:?}");
}
