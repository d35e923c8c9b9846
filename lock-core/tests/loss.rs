//! A lost lock is told in time, stays lost, and passes on only when it may.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::{
    pin::Pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use lock_core::{
    ErrorKind, Loss, Name, Release,
    wrap::{Injection, Verb},
};
use support::{TTL, World, millis, secs};
use tokio::time::{Instant, timeout};

/// 10 s less 1 % less 3 ms.
const USABLE: Duration = Duration::from_millis(9_897);
const GRACE: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_held_lock_is_renewed_and_its_token_stays() {
    let world = World::new();
    let (locks, script) = world.client();
    let guard = locks.lock("x").unwrap().acquire().await.unwrap();
    let token = guard.fencing_token();
    assert_eq!(guard.ttl(), USABLE);
    tokio::time::sleep(TTL * 20).await;
    assert!(guard.is_held() && guard.remaining() > TTL / 2);
    assert_eq!(guard.fencing_token(), token);
    // At every third of the usable lease, at most a tenth earlier.
    let renewals = script.calls(Verb::Renew);
    assert!((60..=68).contains(&renewals), "{renewals}");
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}

#[tokio::test(start_paused = true)]
async fn the_lease_counts_from_before_the_request() {
    let world = World::new();
    let (locks, script) = world.client_with(World::options().with_verb_limit(secs(5)));
    script.next(Verb::Acquire, Injection::HangAfter);
    let lock = locks.lock("x").unwrap();
    let asked = Instant::now();
    let acquire = tokio::spawn(async move { lock.acquire().await.unwrap() });
    tokio::time::sleep(secs(4)).await;
    script.heal();
    script.always(Verb::Renew, Injection::Refuse);
    let guard = acquire.await.unwrap();
    assert_eq!(guard.remaining(), USABLE - asked.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_comes_too_late_is_asked_for_again() {
    let world = World::new();
    let (locks, script) = world.client_with(World::options().with_verb_limit(secs(60)));
    script.next(Verb::Acquire, Injection::HangAfter);
    let lock = locks.lock("x").unwrap();
    let acquire = tokio::spawn(async move { lock.acquire().await.unwrap() });
    tokio::time::sleep(secs(20)).await;
    script.heal();
    let guard = acquire.await.unwrap();
    assert_eq!(script.calls(Verb::Acquire), 2);
    assert!(guard.remaining() > TTL * 9 / 10, "{:?}", guard.remaining());
}

#[tokio::test(start_paused = true)]
async fn loss_is_told_at_the_deadline_though_the_renewal_hangs() {
    let world = World::new();
    let (locks, script) = world.client();
    let acquired = Instant::now();
    let guard = locks.lock("x").unwrap().acquire().await.unwrap();
    script.always(Verb::Renew, Injection::HangBefore);
    let cancellation = guard.cancellation();
    let loss = timeout(TTL * 2, guard.lost()).await.expect("told by no later than the deadline");
    assert_eq!((loss, acquired.elapsed()), (Loss::Expired, USABLE));
    cancellation.cancelled().await;
    assert!(!guard.is_held());
    assert_eq!(guard.remaining(), millis(0));
    assert_eq!(guard.ensure(millis(0)).unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(locks.statistics().lost, 1);
}

#[tokio::test(start_paused = true)]
async fn a_late_renewal_revives_nothing() {
    let world = World::new();
    let (locks, script) = world.client_with(World::options().with_verb_limit(secs(60)));
    let guard = locks.lock("x").unwrap().acquire().await.unwrap();
    script.always(Verb::Renew, Injection::HangAfter);
    tokio::time::sleep(USABLE + millis(1)).await;
    assert!(!guard.is_held());
    script.heal();
    tokio::time::sleep(secs(5)).await;
    assert!(!guard.is_held());
    assert_eq!(guard.lost().await, Loss::Expired);
    assert_eq!(guard.release().await.unwrap(), Release::AlreadyLost(Loss::Expired));
}

#[tokio::test(start_paused = true)]
async fn after_the_deadline_the_lock_passes_on_only_when_the_grace_is_over() {
    let world = World::new();
    let (locks, script) = world.client();
    let (rival, _) = world.client();
    let acquired = Instant::now();
    let guard = locks.lock("x").unwrap().acquire().await.unwrap();
    script.always(Verb::Renew, Injection::Refuse);
    let next = rival.lock("x").unwrap().acquire().await.unwrap();
    assert!(acquired.elapsed() >= TTL + GRACE, "passed on after {:?}", acquired.elapsed());
    assert!(next.fencing_token() > guard.fencing_token());
    assert_eq!(script.calls(Verb::Release), 0, "released while the guard lived");
}

#[tokio::test(start_paused = true)]
async fn after_the_deadline_a_dropped_guard_frees_the_lock_at_once() {
    let world = World::new();
    let (locks, script) = world.client();
    let (rival, _) = world.client();
    let acquired = Instant::now();
    let guard = locks.lock("x").unwrap().acquire().await.unwrap();
    script.always(Verb::Renew, Injection::Refuse);
    let lost = guard.lost();
    tokio::spawn(async move {
        lost.await;
        drop(guard);
    });
    let _next = rival.lock("x").unwrap().acquire().await.unwrap();
    assert!(acquired.elapsed() < USABLE + millis(50), "passed on after {:?}", acquired.elapsed());
}

#[tokio::test(start_paused = true)]
async fn the_servers_word_of_loss_is_told_at_the_next_renewal() {
    let world = World::new();
    let (locks, script) = world.client();
    let guard = locks.lock("x").unwrap().acquire().await.unwrap();
    assert!(world.store.revoke(&Name::new("x").unwrap()));
    let lost = timeout(TTL / 3, guard.lost()).await.unwrap();
    assert_eq!(lost, Loss::Revoked);
    assert_eq!(guard.release().await.unwrap(), Release::AlreadyLost(Loss::Revoked));
    assert_eq!(script.calls(Verb::Release), 0, "there was nothing to release");
}

#[tokio::test(start_paused = true)]
async fn failing_renewals_inside_the_lease_are_no_loss() {
    let world = World::new();
    let (locks, script) = world.client();
    let guard = locks.lock("x").unwrap().acquire().await.unwrap();
    for _ in 0..5 {
        script.next(Verb::Renew, Injection::Refuse);
    }
    tokio::time::sleep(TTL * 3).await;
    assert!(guard.is_held());
    assert_eq!(locks.statistics().renewal_failures, 5);
}

#[tokio::test(start_paused = true)]
async fn a_hanging_renewal_is_given_up_and_asked_again_inside_the_lease() {
    let world = World::new();
    let (locks, script) = world.client();
    let guard = locks.lock("x").unwrap().acquire().await.unwrap();
    script.next(Verb::Renew, Injection::HangBefore);
    script.next(Verb::Renew, Injection::HangBefore);
    tokio::time::sleep(TTL * 2).await;
    assert!(guard.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_is_refused_for_good_is_not_repeated() {
    let world = World::new();
    let (locks, script) = world.client();
    let guard = locks.lock("x").unwrap().acquire().await.unwrap();
    script.always(Verb::Renew, Injection::Deny);
    assert_eq!(guard.lost().await, Loss::Expired);
    assert_eq!(script.calls(Verb::Renew), 1);
}

#[tokio::test(start_paused = true)]
async fn after_a_suspend_the_first_look_is_right() {
    let world = World::new();
    let (locks, _) = world.client();
    let guard = locks.lock("x").unwrap().acquire().await.unwrap();
    let mut lost = Box::pin(guard.lost());
    assert!(poll_once(&mut lost).is_none());
    world.clock.suspend(secs(60));
    // No timer has fired: these answers come from the clock.
    assert_eq!(poll_once(&mut lost), Some(Loss::Expired));
    assert!(!guard.is_held());
    // And no renewal brings it back.
    tokio::time::sleep(TTL).await;
    assert!(!guard.is_held());
}

fn poll_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    match Pin::new(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

#[tokio::test(start_paused = true)]
async fn max_hold_ends_a_hung_tasks_lock() {
    let world = World::new();
    let (locks, _) = world.client_with(World::options().with_max_hold(secs(60)));
    let (rival, _) = world.client();
    let acquired = Instant::now();
    let guard = locks.lock("x").unwrap().acquire().await.unwrap();
    assert_eq!(guard.lost().await, Loss::MaxHold);
    assert_eq!(acquired.elapsed(), secs(60));
    let _next = rival.lock("x").unwrap().acquire().await.unwrap();
    assert!(acquired.elapsed() <= secs(60) + TTL + GRACE + millis(100), "{:?}", acquired.elapsed());
}

#[tokio::test(start_paused = true)]
async fn run_stops_the_work_on_loss_and_only_then() {
    let world = World::new();
    let (locks, script) = world.client();
    let lock = locks.lock("x").unwrap();
    let guard = lock.acquire().await.unwrap();
    assert_eq!(guard.run(async { 42 }).await, Ok(42));
    script.always(Verb::Renew, Injection::Refuse);
    let work = async {
        tokio::time::sleep(TTL * 3).await;
        unreachable!("the work goes on after the loss");
    };
    assert_eq!(guard.run(work).await, Err::<(), _>(Loss::Expired));
    assert_eq!(guard.run(async { unreachable!("begun after the loss") }).await, Err::<(), _>(Loss::Expired));
}

#[tokio::test(start_paused = true)]
async fn lost_says_released_after_an_orderly_end() {
    let world = World::new();
    let (locks, _) = world.client();
    let lock = locks.lock("x").unwrap();
    let guard = lock.acquire().await.unwrap();
    let (lost, cancellation) = (guard.lost(), guard.cancellation());
    guard.release().await.unwrap();
    assert_eq!(lost.await, Loss::Released);
    assert!(cancellation.is_cancelled());

    let guard = lock.acquire().await.unwrap();
    let (lost, cancellation) = (guard.lost(), guard.cancellation());
    drop(guard);
    assert!(cancellation.is_cancelled());
    assert_eq!(lost.await, Loss::Released);
    assert_eq!(locks.statistics().lost, 0);
}

#[tokio::test(start_paused = true)]
async fn ensure_refuses_what_would_take_longer_than_the_lease_left() {
    let world = World::new();
    let (locks, script) = world.client();
    let guard = locks.lock("x").unwrap().acquire().await.unwrap();
    script.always(Verb::Renew, Injection::Refuse);
    tokio::time::sleep(secs(6)).await;
    assert!(guard.ensure(secs(3)).is_ok());
    assert_eq!(guard.ensure(secs(5)).unwrap_err().kind(), ErrorKind::Unmet);
}

#[tokio::test(start_paused = true)]
async fn a_release_does_not_wait_for_the_renewal_under_way() {
    let world = World::new();
    let (locks, script) = world.client();
    let guard = locks.lock("x").unwrap().acquire().await.unwrap();
    script.always(Verb::Renew, Injection::HangBefore);
    tokio::time::sleep(TTL / 3).await;
    assert_eq!(script.calls(Verb::Renew), 1);
    let begun = Instant::now();
    assert_eq!(guard.release().await.unwrap(), Release::Released);
    assert_eq!(begun.elapsed(), secs(0));
    script.heal();
    tokio::time::sleep(TTL).await;
    assert_eq!(world.store.names(), 0, "the renewal brought it back");
}
