//! What the server is asked, counted by the server.

// Helpers are part of the tests, but the lint does not know that.
#![allow(clippy::unwrap_used)]

mod support;

use std::time::Duration;

use lock_core::{Backend, Locks, Options};
use support::{Kind, Server, claim, held, until};

/// How many requests the server has answered, but for those that ask for that.
struct Requests<'a> {
    server: &'a Server,
    asked: u32,
}

impl<'a> Requests<'a> {
    fn of(server: &'a Server) -> Self {
        let mut requests = Self { server, asked: 0 };
        let (first, second) = (requests.count(), requests.count());
        requests.asked = second - first;
        requests
    }

    fn count(&self) -> u32 {
        self.server.status("Questions")
    }

    async fn during(&self, work: impl Future<Output = ()>) -> u32 {
        let before = self.count();
        work.await;
        self.count() - before - self.asked
    }
}

on_both!(an_uncontended_pair_is_two_requests);
async fn an_uncontended_pair_is_two_requests(kind: Kind) {
    let server = Server::start(kind, &[]);
    let backend = server.backend().await;
    let pair = async || {
        let claim = claim("a");
        held(&backend, &claim).await;
        backend.release(&claim).await.unwrap();
    };
    // The first one makes the row, and prepares the statements.
    pair().await;
    pair().await;
    assert_eq!(Requests::of(&server).during(pair()).await, 2);
}

#[tokio::test]
async fn a_hundred_waiting_tasks_cost_less_than_two_requests_a_second() {
    let server = Server::start(Kind::MariaDb, &[]);
    // The holder renews every ten seconds; the waiters are another process's.
    let holder = Locks::new(server.backend().await).unwrap();
    let waiters = Locks::new(server.backend().await).unwrap();
    let guard = holder.lock("a").unwrap().acquire().await.unwrap();
    let waiting: Vec<_> = (0..100)
        .map(|_| {
            let lock = waiters.lock("a").unwrap();
            tokio::spawn(async move { lock.acquire().await.unwrap().release().await.unwrap() })
        })
        .collect();
    until("all wait", || waiters.statistics().waiting == 100).await;
    until("the bell", || server.sleepers() == 1).await;
    let span = Duration::from_secs(11);
    let requests = Requests::of(&server).during(tokio::time::sleep(span)).await;
    assert!(f64::from(requests) / span.as_secs_f64() < 2.0, "{requests} requests in {span:?}");
    assert!(requests >= 2, "no renewal in the span, or no look");
    guard.release().await.unwrap();
    for task in waiting {
        task.await.unwrap();
    }
    println!("{requests} requests in {span:?}");
}

#[tokio::test]
async fn each_waiting_process_asks_three_times_in_a_ttl() {
    let (processes, ttl) = (8, Duration::from_secs(6));
    let server = Server::start(Kind::MariaDb, &[]);
    let mut clients = Vec::new();
    for _ in 0..=processes {
        let backend = server.backend().await;
        clients.push(Locks::with_options(backend, Options::default().with_ttl(ttl)).unwrap());
    }
    let guard = clients[0].lock("a").unwrap().acquire().await.unwrap();
    let waiting: Vec<_> = clients[1..]
        .iter()
        .map(|locks| {
            let lock = locks.lock("a").unwrap();
            tokio::spawn(async move { lock.acquire().await.unwrap().release().await.unwrap() })
        })
        .collect();
    until("all bells", || server.sleepers() == processes).await;
    let span = ttl * 2;
    let requests = Requests::of(&server).during(tokio::time::sleep(span)).await;
    let rate = f64::from(requests) / span.as_secs_f64();
    let most = processes as f64 * 3.0 / ttl.as_secs_f64() + 1.0;
    assert!(rate <= most, "{requests} requests in {span:?}, which is more than {most} a second");
    guard.release().await.unwrap();
    for task in waiting {
        task.await.unwrap();
    }
    println!("{requests} requests of {processes} processes in {span:?}");
}
