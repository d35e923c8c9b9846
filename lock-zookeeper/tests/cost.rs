//! What the servers are asked, counted on the wire.
// Helpers are part of the tests, but the lint does not know that.
#![allow(clippy::unwrap_used)]

mod support;

use std::{collections::BTreeMap, pin::pin, time::Duration};

use lock_core::{Backend, Claim, Locks, Options, Owner, Released};
use lock_zookeeper::{ZookeeperBackend, ZookeeperOptions};
use support::{Ensemble, PATIENCE, Tap, busy, claim, held, name};
use tokio::{task::JoinSet, time::timeout};

const TTL: Duration = Duration::from_secs(30);

/// After a third of a ttl holders renew and waiters ask again; some of that is left out here.
const SPAN: Duration = Duration::from_secs(11);

/// The numbers of requests.
const CREATE: i32 = 15;
const DELETE: i32 = 2;
const LIST: i32 = 8;
const LOOK: i32 = 4;
const WRITE: i32 = 5;

async fn backend(tap: &Tap) -> ZookeeperBackend {
    let options = ZookeeperOptions::new([&tap.relay.address]).root("/locks").unwrap();
    ZookeeperBackend::connect(options.tick(support::TICK).connect_timeout(PATIENCE)).await.unwrap()
}

async fn locks(tap: &Tap) -> Locks {
    Locks::with_options(backend(tap).await, Options::default().with_ttl(TTL)).unwrap()
}

/// Both requests of the acquire are at the server before an answer to either is let through.
#[tokio::test]
async fn an_uncontended_pair_is_three_requests_in_two_round_trips() {
    let server = Ensemble::start(1);
    let tap = Tap::on(server.servers().remove(0)).await;
    let backend = backend(&tap).await;
    // Long enough that the driver does not take the server for dead while its answers are held back.
    let claim = || Claim::new(name("a"), Owner::random().unwrap(), Duration::from_mins(2));
    let warm = claim();
    held(&backend, &warm).await;
    backend.release(&warm).await.unwrap();
    tap.reset();
    let claim = claim();
    tap.relay.hold_answers(true);
    let mut acquired = pin!(held(&backend, &claim));
    let asked = async {
        while tap.counted().1 != BTreeMap::from([(CREATE, 1), (LIST, 1)]) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::select! {
        biased;
        grant = &mut acquired => panic!("{grant:?} without an answer"),
        all = timeout(PATIENCE, asked) => all.unwrap_or_else(|_| panic!("asked {:?} at once", tap.counted().1)),
    }
    tap.relay.hold_answers(false);
    timeout(PATIENCE, acquired).await.unwrap();
    assert_eq!(backend.release(&claim).await.unwrap(), Released::Released);
    assert_eq!(tap.counted().1, BTreeMap::from([(CREATE, 1), (LIST, 1), (DELETE, 1)]));
}

/// It looks once more while the one before it still holds, and then needs no further look.
#[tokio::test]
async fn the_deletion_of_the_nearest_alone_hands_over() {
    let server = Ensemble::start(1);
    let tap = Tap::on(server.servers().remove(0)).await;
    let (others, last) = (server.backend().await, backend(&tap).await);
    let (holder, second, third) = (claim("a"), claim("a").queued(true), claim("a").queued(true));
    held(&others, &holder).await;
    let promoted = busy(&others, &second).await.wake.unwrap();
    let wake = tokio::spawn(busy(&last, &third).await.wake.unwrap());
    tap.reset();
    others.release(&holder).await.unwrap();
    timeout(PATIENCE, promoted).await.unwrap().expect("a grant for the second");
    let looked = async {
        while tap.counted().1.is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(PATIENCE, looked).await.unwrap();
    // The answer is there when a later request of the same connection is answered.
    last.renew(&claim("b")).await.unwrap();
    tap.reset();
    others.release(&second).await.unwrap();
    let grant = timeout(PATIENCE, wake).await.unwrap().unwrap().expect("a grant for the third");
    assert_eq!(tap.counted().1, BTreeMap::new());
    assert_eq!(held(&last, &third).await.token, grant.token);
}

#[tokio::test]
async fn a_hundred_waiting_tasks_cost_less_than_two_requests_a_second() {
    let server = Ensemble::start(1);
    let tap = Tap::on(server.servers().remove(0)).await;
    // The waiters are another process's.
    let (holder, waiters) = (locks(&tap).await, locks(&tap).await);
    let guard = holder.lock("a").unwrap().acquire().await.unwrap();
    let mut waiting = JoinSet::new();
    for _ in 0..100 {
        let lock = waiters.lock("a").unwrap();
        waiting.spawn(async move { lock.acquire().await.unwrap().release().await.unwrap() });
    }
    watches(&server, 2).await;
    tap.reset();
    tokio::time::sleep(SPAN).await;
    let (pings, requests) = tap.counted();
    println!("{pings} pings and {requests:?} in {SPAN:?}");
    let total = pings + requests.values().sum::<usize>();
    assert!((total as f64) < 2.0 * SPAN.as_secs_f64(), "{pings} pings and {requests:?}");
    // The holder has renewed, and the head of the waiters has asked again: each by a write. The first renewal
    // sets a watch on the holder's node.
    assert_eq!(requests, BTreeMap::from([(WRITE, 2), (LOOK, 1)]));
    guard.release().await.unwrap();
    timeout(PATIENCE, waiting.join_all()).await.unwrap();
}

/// A ping is no request to ZooKeeper but what keeps a connection, which every client of it pays. The driver
/// sends one when it has sent nothing for three eighths of the silence that it takes for a dead server.
#[tokio::test]
async fn each_waiting_process_costs_three_requests_a_ttl() {
    const PROCESSES: usize = 8;
    let server = Ensemble::start(1);
    let tap = Tap::on(server.servers().remove(0)).await;
    let there = Locks::with_options(server.backend().await, Options::default().with_ttl(TTL)).unwrap();
    let _guard = there.lock("a").unwrap().acquire().await.unwrap();
    let mut waiting = JoinSet::new();
    for _ in 0..PROCESSES {
        let locks = locks(&tap).await;
        waiting.spawn(async move { locks.lock("a").unwrap().acquire().await.map(drop) });
    }
    watches(&server, 3 * PROCESSES - 1).await;
    tap.reset();
    tokio::time::sleep(SPAN).await;
    let (pings, requests) = tap.counted();
    println!("{pings} pings and {requests:?} in {SPAN:?}");
    let (processes, span) = (PROCESSES as f64, SPAN.as_secs_f64());
    let asked = requests.values().sum::<usize>();
    assert!(asked as f64 <= (processes * 3.0 / TTL.as_secs_f64() + 1.0) * span, "{requests:?}");
    assert!(asked >= PROCESSES, "nobody has asked again: {requests:?}");
    assert!((pings as f64) < processes * span / 3.0, "{pings} pings");
}

/// Waits until so many watches are set: one on the claim's own node, and one on each of the two ahead.
async fn watches(server: &Ensemble, number: usize) {
    let all = async {
        while server.watches() < number {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, all).await.unwrap();
}
