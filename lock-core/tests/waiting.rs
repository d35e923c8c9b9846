//! Patience, errors, order, and what waiting costs.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use lock_core::{
    Attempt, Backend, Claim, ErrorKind, Guarantees, Locks, Owner, Released, Renewal, Result,
    wrap::{Faulty, Injection, Verb},
};
use support::{TTL, World, millis, secs};
use tokio::time::{Instant, timeout};

#[tokio::test(start_paused = true)]
async fn busy_is_none_and_patience_is_kept() {
    let world = World::new();
    let (locks, _) = world.client();
    let (rival, _) = world.client();
    let _held = rival.lock("x").unwrap().acquire().await.unwrap();
    let lock = locks.lock("x").unwrap();
    assert!(lock.try_acquire().await.unwrap().is_none());
    let begun = Instant::now();
    assert!(lock.acquire_within(secs(3)).await.unwrap().is_none());
    assert_eq!(begun.elapsed(), secs(3));
    assert!(lock.acquire_within(secs(0)).await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn the_holder_itself_waits_too() {
    let world = World::new();
    let (locks, _) = world.client();
    let lock = locks.lock("x").unwrap();
    let guard = lock.acquire().await.unwrap();
    assert!(lock.try_acquire().await.unwrap().is_none());
    assert!(lock.acquire_within(secs(1)).await.unwrap().is_none());
    guard.release().await.unwrap();
    assert!(lock.try_acquire().await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_answer_is_an_error_soon_after_the_patience() {
    let world = World::new();
    let (locks, script) = world.client();
    script.always(Verb::Acquire, Injection::HangBefore);
    let lock = locks.lock("x").unwrap();
    let begun = Instant::now();
    let behind = lock.clone();
    let behind = tokio::spawn(async move { behind.acquire_within(secs(3)).await });
    let error = timeout(secs(60), lock.acquire_within(secs(3))).await.expect("an answer").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    // The verb limit of a ttl of 10 s is a sixth of it.
    assert!(begun.elapsed() <= secs(3) + TTL / 6, "{:?}", begun.elapsed());
    assert_eq!(behind.await.unwrap().unwrap_err().kind(), ErrorKind::Timeout);
    let error = lock.try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
}

#[tokio::test(start_paused = true)]
async fn the_last_word_decides_between_none_and_an_error() {
    let world = World::new();
    let (locks, script) = world.client();
    let (rival, _) = world.client();
    let _held = rival.lock("x").unwrap().acquire().await.unwrap();
    let lock = locks.lock("x").unwrap();
    let waiting = tokio::spawn(async move { lock.acquire_within(secs(60)).await });
    tokio::time::sleep(secs(1)).await;
    script.always(Verb::Acquire, Injection::Refuse);
    assert_eq!(waiting.await.unwrap().unwrap_err().kind(), ErrorKind::Unavailable);
}

#[tokio::test(start_paused = true)]
async fn without_a_patience_a_dead_server_is_an_error_after_a_lease() {
    let world = World::new();
    let (locks, script) = world.client();
    script.always(Verb::Acquire, Injection::Refuse);
    let begun = Instant::now();
    let error = locks.lock("x").unwrap().acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(begun.elapsed() >= TTL && begun.elapsed() < TTL * 2, "{:?}", begun.elapsed());
    // A second apart at most, and not in step.
    assert!((10..=40).contains(&script.calls(Verb::Acquire)), "{}", script.calls(Verb::Acquire));
}

#[tokio::test(start_paused = true)]
async fn a_transient_error_is_survived_with_the_same_claim() {
    let world = World::new();
    let (locks, script) = world.client();
    script.next(Verb::Acquire, Injection::LoseReply);
    script.next(Verb::Acquire, Injection::Refuse);
    let begun = Instant::now();
    let guard = locks.lock("x").unwrap().acquire().await.unwrap();
    assert!(begun.elapsed() < secs(1), "blocked by its own first attempt for {:?}", begun.elapsed());
    assert_eq!(guard.fencing_token().value(), 1, "granted twice");
}

#[tokio::test(start_paused = true)]
async fn a_permanent_error_is_told_at_once_and_not_repeated() {
    let world = World::new();
    let (locks, script) = world.client();
    script.always(Verb::Acquire, Injection::Deny);
    let begun = Instant::now();
    let lock = locks.lock("x").unwrap();
    assert_eq!(lock.acquire().await.unwrap_err().kind(), ErrorKind::Denied);
    assert_eq!(lock.acquire_within(secs(9)).await.unwrap_err().kind(), ErrorKind::Denied);
    assert_eq!(lock.try_acquire().await.unwrap_err().kind(), ErrorKind::Denied);
    assert_eq!(begun.elapsed(), secs(0));
    assert_eq!(script.calls(Verb::Acquire), 3);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_after_an_unknown_outcome_is_cleaned_up_after() {
    let world = World::new();
    let (locks, script) = world.client();
    script.next(Verb::Acquire, Injection::LoseReply);
    script.next(Verb::Acquire, Injection::Deny);
    assert_eq!(locks.lock("x").unwrap().acquire().await.unwrap_err().kind(), ErrorKind::Denied);
    tokio::time::sleep(millis(1)).await;
    assert_eq!(world.store.names(), 0, "the first attempt's claim is left");
}

#[tokio::test(start_paused = true)]
async fn none_means_that_the_queue_was_left() {
    let world = World::new();
    let (locks, _) = world.client();
    let (rival, _) = world.client();
    let held = rival.lock("x").unwrap().acquire().await.unwrap();
    let lock = locks.lock("x").unwrap();
    for patience in [secs(0), secs(1)] {
        assert!(lock.acquire_within(patience).await.unwrap().is_none());
    }
    held.release().await.unwrap();
    // Nothing has run since that could have cleaned up.
    assert_eq!(world.store.names(), 0);
}

#[tokio::test(start_paused = true)]
async fn tasks_of_one_process_are_served_in_order_and_ask_as_one() {
    let world = World::new();
    let (locks, script) = world.client();
    let (rival, _) = world.client();
    let held = rival.lock("x").unwrap().acquire().await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for i in 0..100 {
        let (lock, order) = (locks.lock("x").unwrap(), order.clone());
        tasks.push(tokio::spawn(async move {
            let guard = lock.acquire().await.unwrap();
            order.lock().unwrap().push((i, guard.fencing_token()));
        }));
        tokio::task::yield_now().await;
    }
    let before = script.calls(Verb::Acquire);
    tokio::time::sleep(secs(60)).await;
    let asked = script.calls(Verb::Acquire) - before;
    assert!(asked <= 21, "100 waiters asked {asked} times in a minute");
    drop(held);
    for task in tasks {
        task.await.unwrap();
    }
    let order = order.lock().unwrap();
    assert!(order.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1), "{order:?}");
}

#[tokio::test(start_paused = true)]
async fn a_try_gives_way_to_tasks_that_wait() {
    let world = World::new();
    let (locks, script) = world.client();
    let (rival, _) = world.client();
    let held = rival.lock("x").unwrap().acquire().await.unwrap();
    let lock = locks.lock("x").unwrap();
    let waiting = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire().await }
    });
    tokio::time::sleep(secs(1)).await;
    let asked = script.calls(Verb::Acquire);
    assert!(lock.try_acquire().await.unwrap().is_none());
    assert_eq!(script.calls(Verb::Acquire), asked);
    drop(held);
    drop(waiting.await.unwrap().unwrap());
}

#[tokio::test(start_paused = true)]
async fn between_clients_the_first_claim_is_promoted_and_holds_without_asking() {
    let world = World::new();
    let (holder, _) = world.client();
    let held = holder.lock("x").unwrap().acquire().await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    let mut scripts = Vec::new();
    for i in 0..4 {
        let (locks, script) = world.client();
        let order = order.clone();
        tasks.push(tokio::spawn(async move {
            let guard = locks.lock("x").unwrap().acquire().await.unwrap();
            order.lock().unwrap().push(i);
            assert!(guard.remaining() > TTL / 2);
            tokio::time::sleep(millis(100)).await;
            assert!(guard.is_held());
        }));
        scripts.push(script);
        tokio::time::sleep(millis(1)).await;
    }
    let before: Vec<usize> = scripts.iter().map(|script| script.calls(Verb::Acquire)).collect();
    drop(held);
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3]);
    assert_eq!(scripts[0].calls(Verb::Acquire), before[0], "the promoted one asked again");
    assert_eq!(scripts[0].calls(Verb::Renew), 0, "a fresh lease was renewed");
}

#[tokio::test(start_paused = true)]
async fn a_dead_waiters_place_runs_out_beside_the_others() {
    let world = World::new();
    let (holder, _) = world.client();
    let held = holder.lock("x").unwrap().acquire().await.unwrap();
    for _ in 0..5 {
        // A waiter whose process is gone: its claim is never asked for again, never released.
        let (locks, script) = world.client();
        script.always(Verb::Release, Injection::Refuse);
        let waiting = tokio::spawn(async move { locks.lock("x").unwrap().acquire().await.map(drop) });
        tokio::time::sleep(millis(1)).await;
        waiting.abort();
    }
    let (locks, _) = world.client();
    let alive = tokio::spawn(async move { locks.lock("x").unwrap().acquire().await.unwrap() });
    tokio::time::sleep(millis(1)).await;
    let begun = Instant::now();
    drop(held);
    drop(alive.await.unwrap());
    assert!(begun.elapsed() <= TTL * 6 / 5, "five dead waiters cost {:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn waiters_are_bounded() {
    let world = World::new();
    let (locks, _) = world.client_with(World::options().with_waiters(2));
    let lock = locks.lock("x").unwrap();
    let _held = lock.acquire().await.unwrap();
    let waiting: Vec<_> = (0..2)
        .map(|_| {
            let lock = lock.clone();
            tokio::spawn(async move { lock.acquire().await.map(drop) })
        })
        .collect();
    tokio::time::sleep(millis(1)).await;
    assert_eq!(lock.acquire().await.unwrap_err().kind(), ErrorKind::TooManyWaiters);
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
    tokio::time::sleep(millis(1)).await;
    assert!(lock.acquire_within(millis(1)).await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn handovers_are_counted_and_timed() {
    let world = World::new();
    let (locks, _) = world.client();
    let lock = locks.lock("x").unwrap();
    let guard = lock.acquire().await.unwrap();
    let next = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire().await.unwrap() }
    });
    tokio::time::sleep(secs(1)).await;
    let statistics = locks.statistics();
    assert_eq!((statistics.held, statistics.waiting, statistics.acquired), (1, 1, 1));
    drop(guard);
    let next = next.await.unwrap();
    let statistics = locks.statistics();
    assert_eq!((statistics.held, statistics.waiting, statistics.acquired), (1, 0, 2));
    assert_eq!((statistics.released, statistics.handover.count), (1, 1));
    assert!(statistics.acquire.calls >= 2 && statistics.acquire.errors == 0);
    drop(next);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_remembered_of_names_that_nobody_wants() {
    let world = World::new();
    let (locks, _) = world.client();
    for i in 0..10_000 {
        locks.lock(format!("n{i}")).unwrap().acquire().await.unwrap().release().await.unwrap();
    }
    assert_eq!((world.store.names(), locks.statistics().waiting, locks.statistics().held), (0, 0, 0));
    assert_eq!(close(&locks).await, 0);
}

async fn close(locks: &Locks) -> usize {
    locks.close(secs(0)).await.len()
}

/// Notes for each claim whether its attempts were said to be the first, and in what order what was asked.
#[derive(Debug)]
struct Noting<B> {
    backend: B,
    fresh: Arc<Mutex<HashMap<Owner, Vec<bool>>>>,
    asked: Arc<Mutex<Vec<(Verb, Owner)>>>,
}

#[async_trait]
impl<B: Backend> Backend for Noting<B> {
    fn guarantees(&self) -> Guarantees {
        self.backend.guarantees()
    }

    async fn acquire(&self, claim: &Claim) -> Result<Attempt> {
        self.fresh.lock().unwrap().entry(claim.owner).or_default().push(claim.fresh);
        self.asked.lock().unwrap().push((Verb::Acquire, claim.owner));
        self.backend.acquire(claim).await
    }

    async fn renew(&self, claim: &Claim) -> Result<Renewal> {
        self.backend.renew(claim).await
    }

    async fn release(&self, claim: &Claim) -> Result<Released> {
        self.asked.lock().unwrap().push((Verb::Release, claim.owner));
        self.backend.release(claim).await
    }
}

#[tokio::test(start_paused = true)]
async fn only_the_first_attempt_of_a_claim_is_fresh() {
    let world = World::new();
    let (rival, _) = world.client();
    let (backend, script) = Faulty::new(world.store.clone());
    let fresh = Arc::default();
    let backend = Noting { backend, fresh: Arc::clone(&fresh), asked: Arc::default() };
    let locks = Locks::with_clock(backend, World::options(), Arc::new(world.clock.clone())).unwrap();
    let lock = locks.lock("x").unwrap();
    // Refused, which left nothing; lost with its reply, which may have; busy, which has.
    for first in [Injection::Refuse, Injection::LoseReply, Injection::Pass] {
        let held = rival.lock("x").unwrap().acquire().await.unwrap();
        script.next(Verb::Acquire, first);
        assert!(lock.acquire_within(secs(30)).await.unwrap().is_none());
        held.release().await.unwrap();
        lock.acquire().await.unwrap().release().await.unwrap();
        lock.try_acquire().await.unwrap().unwrap().release().await.unwrap();
    }
    let fresh = fresh.lock().unwrap();
    assert_eq!(fresh.len(), 9, "a claim for each call");
    assert!(fresh.values().filter(|attempts| attempts.len() > 1).count() >= 3, "{fresh:?}");
    assert!(fresh.values().all(|attempts| attempts[0] && !attempts[1..].contains(&true)), "{fresh:?}");
}

#[tokio::test(start_paused = true)]
async fn within_a_process_the_next_asks_when_the_lock_is_being_released() {
    let world = World::new();
    let asked: Arc<Mutex<Vec<(Verb, Owner)>>> = Arc::default();
    let backend = Noting { backend: world.store.clone(), fresh: Arc::default(), asked: Arc::clone(&asked) };
    let locks = Locks::with_clock(backend, World::options(), Arc::new(world.clock.clone())).unwrap();
    let lock = locks.lock("x").unwrap();
    let held = lock.acquire().await.unwrap();
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let lock = lock.clone();
        tasks.push(tokio::spawn(async move {
            let guard = lock.acquire().await.unwrap();
            let owner = guard.owner();
            tokio::task::yield_now().await;
            guard.release().await.unwrap();
            owner
        }));
        tokio::task::yield_now().await;
    }
    // The first of them cannot know how long this one is held.
    tokio::time::sleep(secs(1)).await;
    assert_eq!(asked.lock().unwrap().len(), 2);
    held.release().await.unwrap();
    let mut owners = Vec::new();
    for task in tasks {
        owners.push(task.await.unwrap());
    }
    let asked = asked.lock().unwrap();
    let expected: Vec<_> = owners
        .windows(2)
        .flat_map(|pair| [(Verb::Release, pair[0]), (Verb::Acquire, pair[1])])
        .chain([(Verb::Release, owners[3])])
        .collect();
    assert_eq!(asked[3..], expected);
    assert_eq!(locks.statistics().handover.count, 4);
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_kept_finds_the_next_in_the_servers_queue() {
    let world = World::new();
    let (locks, script) = world.client();
    let (rival, _) = world.client();
    let lock = locks.lock("x").unwrap();
    let held = lock.acquire().await.unwrap();
    let [first, second] = [(); 2].map(|()| {
        let lock = lock.clone();
        tokio::spawn(async move { lock.acquire().await.unwrap() })
    });
    tokio::time::sleep(millis(1)).await;
    held.release().await.unwrap();
    let first = first.await.unwrap();
    tokio::time::sleep(millis(2)).await;
    assert_eq!(script.calls(Verb::Acquire), 3, "the next has a place in the queue");
    let rival = tokio::spawn(async move { rival.lock("x").unwrap().acquire().await.unwrap() });
    tokio::time::sleep(millis(1)).await;
    first.release().await.unwrap();
    let second = second.await.unwrap();
    assert!(!rival.is_finished());
    second.release().await.unwrap();
    rival.await.unwrap().release().await.unwrap();
}
