//! A release hands the lock to the next in line and tells its connection.
// Helpers are part of the tests, but the lint does not know that.
#![allow(clippy::unwrap_used)]

mod support;

use std::{
    task::{Context, Waker},
    time::{Duration, Instant},
};

use lock_core::{
    Attempt, Backend, Busy, Claim, ErrorKind, Fairness, Grant, Locks, Options, Owner, Released, Renewal,
    Wakeup,
};
use lock_redis::{Protocol, RedisBackend};
use support::{PATIENCE, Server, ask, busy, claim, connect, ends, held, name, until, until_answered};

/// The grant that came with the wake.
async fn promoted(busy: Busy) -> Grant {
    let wake = busy.wake.expect("a wake");
    tokio::time::timeout(PATIENCE, wake).await.expect("woken").expect("a grant")
}

/// A reason to ask again came with the wake.
async fn woken(busy: Busy) {
    let wake = busy.wake.expect("a wake");
    assert!(tokio::time::timeout(PATIENCE, wake).await.expect("woken").is_none());
}

fn claim_for(lease: Duration) -> Claim {
    Claim::new(name("a"), Owner::random().unwrap(), lease).queued(true).labelled("test")
}

/// Busy, on a connection that may have to be opened first.
async fn until_busy(backend: &RedisBackend, claim: &Claim) -> Busy {
    match until_answered(|| backend.acquire(claim)).await {
        Attempt::Busy(busy) => busy,
        other => panic!("{other:?}"),
    }
}

fn channels(server: &Server) -> Vec<String> {
    server.ask("PUBSUB CHANNELS")
}

fn places(server: &Server) -> Vec<String> {
    server.ask("LRANGE polylock:{a}:queue 0 -1")
}

#[tokio::test]
async fn a_release_hands_the_lock_to_a_waiter_of_another_process_at_once() {
    let server = Server::start(&[]);
    let (here, there) = (server.backend().await, server.backend().await);
    let guarantees = here.guarantees();
    assert_eq!((guarantees.wakeup, guarantees.fairness), (Wakeup::Push, Fairness::FifoByClaim));
    let (holder, waiter) = (claim("a"), claim("a"));
    let first = held(&here, &holder).await;
    let told = busy(&there, &waiter).await;
    let since = Instant::now();
    here.release(&holder).await.unwrap();
    let grant = promoted(told).await;
    // Far less than the third of a lease after which it would ask again.
    assert!(since.elapsed() < Duration::from_secs(10), "{:?}", since.elapsed());
    assert!(grant.token > first.token);
    assert!(grant.doubt.is_some());
    // The server says the same to whoever asks, also if the word had been lost.
    assert_eq!(
        server.ask::<String>("GET polylock:{a}"),
        format!("{}:{}:test", waiter.owner.to_hex(), grant.token)
    );
    assert_eq!(server.ask::<String>("GET polylock:{a}:fence"), grant.token.to_string());
    assert_eq!(held(&there, &waiter).await.token, grant.token);
    assert_eq!(there.release(&waiter).await.unwrap(), Released::Released);
    assert_eq!(server.ask::<Vec<String>>("KEYS *"), ["polylock:{a}:fence"]);
}

#[tokio::test]
async fn a_promotion_leaves_what_is_left_of_the_lease_and_no_less() {
    let server = Server::start(&[]);
    let backend = server.backend().await;
    let (holder, waiter) = (claim("a"), claim_for(Duration::from_secs(20)));
    held(&backend, &holder).await;
    let asked = lock_core::Moment::now();
    let told = busy(&backend, &waiter).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    backend.release(&holder).await.unwrap();
    let grant = promoted(told).await;
    assert!(grant.lease.since >= asked && grant.lease.length == waiter.lease, "{:?}", grant.lease);
    let left = Duration::from_millis(server.ask("PTTL polylock:{a}"));
    let end = ends(left);
    assert!(left <= Duration::from_millis(19_010), "more than was asked for: {left:?}");
    assert!(end >= grant.lease.end(), "the server ends it sooner than the lease");
    assert!(matches!(backend.renew(&waiter).await.unwrap(), Renewal::Kept(_)));
}

#[tokio::test]
async fn a_first_attempt_queues_behind_the_living_only() {
    let server = Server::start(&[]);
    let backend = server.backend().await;
    held(&backend, &claim_for(Duration::from_secs(10))).await;
    busy(&backend, &claim_for(Duration::from_millis(200))).await;
    tokio::time::sleep(Duration::from_millis(250)).await;
    let [second, third] = [0, 1].map(|_| claim("a").fresh(true));
    let asked = lock_core::Moment::now();
    busy(&backend, &second).await;
    busy(&backend, &third).await;
    let owner = |place: &String| place.split(':').next().map(str::to_owned);
    let expected = [second.owner, third.owner].map(|owner| Some(owner.to_hex()));
    assert_eq!(places(&server).iter().map(owner).collect::<Vec<_>>(), expected);
    let left = Duration::from_millis(server.ask("PTTL polylock:{a}:queue"));
    assert!(ends(left) >= asked + third.lease, "not as long as its longest place: {left:?}");
    // Another attempt finds its place.
    busy(&backend, &second.fresh(false)).await;
    assert_eq!(places(&server).len(), 2);
}

/// The process that holds has another task in line, and is killed.
#[tokio::test]
async fn who_stands_behind_a_dead_waiter_looks_when_the_holders_lease_ends() {
    let server = Server::start(&[]);
    let (dead, alive) = (server.backend().await, server.backend().await);
    held(&dead, &claim_for(Duration::from_secs(3))).await;
    busy(&dead, &claim_for(Duration::from_secs(60))).await;
    drop(dead);
    let locks = Locks::with_options(alive, Options::default().with_ttl(Duration::from_secs(60))).unwrap();
    // Half of the third after which it would renew its place.
    let guard = locks.lock("a").unwrap().acquire_within(Duration::from_secs(10)).await.unwrap();
    guard.expect("handed over").release().await.unwrap();
    assert_eq!(places(&server).len(), 1, "the dead one is passed over and keeps its place");
}

/// It publishes all the same: whoever was told would hold what another one holds.
#[tokio::test]
async fn a_server_that_refuses_writes_promotes_nobody() {
    let server = Server::start(&[]);
    let backend = server.backend().await;
    let (holder, waiter) = (claim("a"), claim("a"));
    let token = held(&backend, &holder).await.token;
    let mut told = busy(&backend, &waiter).await;
    server.ask::<()>("CONFIG SET min-replicas-to-write 1");
    let error = backend.release(&holder).await.unwrap_err();
    assert!(error.is_transient() && error.to_string().contains("NOREPLICAS"), "{error}");
    // What was pushed before this answer has arrived with it.
    assert!(busy(&backend, &claim("a").queued(false)).await.recheck_within > Duration::ZERO);
    let polled = told.wake.as_mut().unwrap().as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_pending(), "{polled:?}");
    assert!(server.ask::<String>("GET polylock:{a}").contains(&format!(":{token}:")), "still the holder's");
    server.ask::<()>("CONFIG SET min-replicas-to-write 0");
    assert_eq!(backend.release(&holder).await.unwrap(), Released::Released);
    assert!(promoted(told).await.token > token);
}

#[tokio::test]
async fn claims_are_served_in_their_order_and_the_others_are_not_disturbed() {
    let server = Server::start(&[]);
    let backend = server.backend().await;
    let mut holder = claim("a");
    let mut last = held(&backend, &holder).await.token;
    let mut waiting = Vec::new();
    for number in 0..5 {
        let waiter = claim("a").labelled(format!("no {number}"));
        waiting.push((waiter.clone(), busy(&backend, &waiter).await));
    }
    // Whoever asks again keeps its place.
    waiting[1].1 = busy(&backend, &waiting[1].0).await;
    // Whoever tries takes none.
    busy(&backend, &claim("a").queued(false)).await;
    assert_eq!(places(&server).len(), 5);
    ask::<()>(&mut server.admin(), "CONFIG RESETSTAT");
    for (waiter, told) in waiting {
        assert_eq!(backend.release(&holder).await.unwrap(), Released::Released);
        let token = promoted(told).await.token;
        assert!(token > last);
        (holder, last) = (waiter, token);
    }
    let statistics: String = server.ask("INFO commandstats");
    assert!(statistics.contains("cmdstat_evalsha:calls=5,"), "each hand-over is one request: {statistics}");
}

#[tokio::test]
async fn busy_is_answered_after_the_subscription_stands() {
    let server = Server::start(&[]);
    let backend = server.backend().await;
    held(&backend, &claim("a")).await;
    assert!(channels(&server).is_empty(), "whoever holds listens to nothing");
    assert!(busy(&backend, &claim("a").queued(false)).await.wake.is_none());
    assert!(channels(&server).is_empty(), "whoever tries listens to nothing");
    let _told = busy(&backend, &claim("a")).await;
    let channels = channels(&server);
    let bell = channels[0].strip_prefix("polylock:wake:").expect("below the prefix");
    assert!(places(&server)[0].contains(bell), "{channels:?}");
}

#[tokio::test]
async fn a_connection_listens_to_one_channel_however_many_names_it_waits_for() {
    let server = Server::start(&[]);
    let (backend, other) = (server.backend().await, server.backend().await);
    let mut waiting = Vec::new();
    for round in 0..50 {
        let name = format!("name {round}");
        let (holder, waiter) = (claim(&name), claim(&name));
        held(&backend, &holder).await;
        waiting.push((holder, busy(&backend, &waiter).await));
    }
    assert_eq!(channels(&server).len(), 1);
    let (holder, mine) = (claim("a"), claim("a"));
    held(&other, &holder).await;
    waiting.push((holder, busy(&other, &mine).await));
    assert_eq!(channels(&server).len(), 2);
    for (holder, told) in waiting {
        other.release(&holder).await.unwrap();
        promoted(told).await;
    }
}

#[tokio::test]
async fn a_release_between_the_answer_and_the_wait_is_heard() {
    let server = Server::start(&[]);
    let backend = server.backend().await;
    let mut holder = claim("a");
    held(&backend, &holder).await;
    // Once with a new subscription, once with one that stands already.
    for _ in 0..2 {
        let waiter = claim("a");
        let told = busy(&backend, &waiter).await;
        backend.release(&holder).await.unwrap();
        promoted(told).await;
        holder = waiter;
    }
}

#[tokio::test]
async fn a_waiter_that_leaves_is_not_promoted_and_one_that_was_hands_on() {
    let server = Server::start(&[]);
    let backend = server.backend().await;
    let (holder, [first, second, third]) = (claim("a"), [claim("a"), claim("a"), claim("a")]);
    held(&backend, &holder).await;
    let (_first, _second) = (busy(&backend, &first).await, busy(&backend, &second).await);
    let told = busy(&backend, &third).await;
    assert_eq!(backend.release(&first).await.unwrap(), Released::Released);
    assert_eq!(backend.release(&first).await.unwrap(), Released::Absent);
    assert_eq!(places(&server).len(), 2);
    backend.release(&holder).await.unwrap();
    // The second was promoted, and gives up before it has heard of it.
    assert_eq!(backend.release(&second).await.unwrap(), Released::Released);
    promoted(told).await;
    assert_eq!(server.ask::<i64>("EXISTS polylock:{a}:queue"), 0);
}

#[tokio::test]
async fn a_place_runs_out_by_itself_while_others_are_kept() {
    let server = Server::start(&[]);
    let backend = server.backend().await;
    let (holder, dead) = (claim("a"), claim_for(Duration::from_millis(100)));
    held(&backend, &holder).await;
    let (_dead, told) = (busy(&backend, &dead).await, busy(&backend, &claim("a")).await);
    tokio::time::sleep(Duration::from_millis(110)).await;
    backend.release(&holder).await.unwrap();
    promoted(told).await;
    // Also where nobody is promoted: another's look clears it away.
    let (_dead, _last) = (busy(&backend, &claim_for(Duration::from_millis(50))).await, claim("a"));
    tokio::time::sleep(Duration::from_millis(60)).await;
    busy(&backend, &claim("a")).await;
    assert_eq!(places(&server).len(), 1);
}

#[tokio::test]
async fn the_queue_goes_with_the_last_of_its_places() {
    let server = Server::start(&[]);
    let backend = server.backend().await;
    held(&backend, &claim("a")).await;
    let (long, short) = (claim_for(Duration::from_secs(20)), claim_for(Duration::from_millis(50)));
    let asked = lock_core::Moment::now();
    let (_long, _short) = (busy(&backend, &long).await, busy(&backend, &short).await);
    let left = Duration::from_millis(server.ask("PTTL polylock:{a}:queue"));
    assert!(left <= Duration::from_millis(20_001) && ends(left) >= asked + long.lease, "{left:?}");
}

#[tokio::test]
async fn a_waiter_whose_connection_is_lost_is_passed_over_and_keeps_its_place() {
    let server = Server::start(&[]);
    let (here, there) = (server.backend().await, server.backend().await);
    let (holder, lost, next) = (claim("a"), claim("a"), claim("a"));
    held(&here, &holder).await;
    let told = busy(&there, &lost).await;
    let listens: String = server.ask("CLIENT LIST TYPE pubsub");
    let id = listens.strip_prefix("id=").and_then(|rest| rest.split(' ').next()).unwrap();
    let next_told = busy(&here, &next).await;
    assert_eq!(server.ask::<i64>(&format!("CLIENT KILL ID {id}")), 1);
    until("the connection is gone", || channels(&server).len() == 1).await;
    woken(told).await;
    assert_eq!(here.release(&holder).await.unwrap(), Released::Released);
    promoted(next_told).await;
    // The first is still the first.
    assert!(places(&server)[0].starts_with(&lost.owner.to_hex()));
    let told = until_busy(&there, &lost).await;
    assert_eq!(here.release(&next).await.unwrap(), Released::Released);
    promoted(told).await;
}

#[tokio::test]
async fn a_lock_that_is_free_is_not_taken_from_those_who_wait() {
    let server = Server::start(&[]);
    let backend = server.backend().await;
    let (holder, first) = (claim("a"), claim("a"));
    held(&backend, &holder).await;
    let told = busy(&backend, &first).await;
    // As a stranger would, who tells nobody.
    assert_eq!(server.ask::<i64>("DEL polylock:{a}"), 1);
    assert!(told.recheck_within <= first.lease / 3);
    for queue in [false, true] {
        busy(&backend, &claim("a").queued(queue)).await;
    }
    // The one who tried has promoted it.
    assert_eq!(held(&backend, &first).await.token, promoted(told).await.token);
}

#[tokio::test]
async fn waiters_wake_when_the_server_is_gone() {
    let mut server = Server::start(&[]);
    let backend = server.backend().await;
    held(&backend, &claim("a")).await;
    let (first, second) = (busy(&backend, &claim("a")).await, busy(&backend, &claim("a")).await);
    server.kill();
    woken(first).await;
    woken(second).await;
}

#[tokio::test]
async fn without_resp3_waiters_poll_and_are_served_in_order() {
    let plain = Server::start(&[]);
    // A server that does not know the greeting, as before version 6.
    let old = Server::start(&["--rename-command", "HELLO", ""]);
    let resp2 = RedisBackend::connect(plain.options().protocol(Protocol::Resp2)).await.unwrap();
    for (backend, server) in [(resp2, &plain), (old.backend().await, &old)] {
        assert_eq!(backend.guarantees().wakeup, Wakeup::Poll);
        let (holder, waiter, last) = (claim("a"), claim("a"), claim("a"));
        held(&backend, &holder).await;
        assert!(busy(&backend, &waiter).await.wake.is_none());
        assert!(channels(server).is_empty());
        busy(&backend, &last).await;
        assert_eq!(backend.release(&holder).await.unwrap(), Released::Released);
        busy(&backend, &last).await;
        held(&backend, &waiter).await;
    }
    let error = connect(&format!("{}?protocol=resp3", old.url())).await.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
}

#[tokio::test]
async fn a_user_who_may_not_use_channels_locks_and_releases() {
    let server = Server::start(&[]);
    server.ask::<()>("ACL SETUSER quiet on >pass ~polylock:* resetchannels +@all");
    let quiet = RedisBackend::connect(server.options().user("quiet").password("pass")).await.unwrap();
    let loud = server.backend().await;
    assert_eq!(quiet.guarantees().wakeup, Wakeup::Poll);
    let (holder, waiter, last) = (claim("a"), claim("a"), claim("a"));
    held(&quiet, &holder).await;
    assert!(busy(&quiet, &waiter).await.wake.is_none());
    let told = busy(&loud, &last).await;
    assert_eq!(quiet.release(&holder).await.unwrap(), Released::Released);
    held(&quiet, &waiter).await;
    // It cannot tell the next one, who finds out when it asks.
    assert_eq!(quiet.release(&waiter).await.unwrap(), Released::Released);
    assert!(told.recheck_within <= last.lease / 3);
    held(&loud, &last).await;
}
