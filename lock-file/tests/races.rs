//! Many at once, and callers that go away.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

mod support;

use std::{
    fs::File,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use lock_core::{Backend, Released};
use support::*;
use tokio::{runtime::Runtime, time::timeout};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_two_hold_at_once_and_tokens_grow_in_the_order_of_the_grants() {
    let locks = Locks::new();
    let (inside, newest) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let (backend, inside, newest) = (locks.connect().await, inside.clone(), newest.clone());
        tasks.spawn(async move {
            for _ in 0..25 {
                let claim = claim("x", LONG);
                let token = acquire(&backend, &claim).await.token.value();
                assert!(!inside.swap(true, Ordering::SeqCst));
                assert!(newest.swap(token, Ordering::SeqCst) < token);
                inside.store(false, Ordering::SeqCst);
                assert_eq!(patiently(|| backend.release(&claim)).await, Released::Released);
            }
        });
    }
    timeout(LONG, tasks.join_all()).await.unwrap();
    assert_eq!(newest.load(Ordering::SeqCst), 200);
}

#[tokio::test]
async fn a_release_wakes_the_waiter_and_its_own_look_does_not() {
    let locks = Locks::new();
    let (holder, waiter) = (locks.connect().await, locks.connect().await);
    let (held_claim, waiting_claim) = (claim("x", LONG), claim("x", LONG));
    held(&holder, &held_claim).await;
    let mut wake = busy(&waiter, &waiting_claim).await.wake.expect("an inotify instance is left");
    drop(busy(&waiter, &waiting_claim).await);
    drop(busy(&holder, &claim("x", LONG)).await);
    held(&holder, &claim("y", LONG)).await;
    timeout(Duration::from_millis(100), &mut wake).await.unwrap_err();
    holder.release(&held_claim).await.unwrap();
    assert!(timeout(PATIENCE, wake).await.unwrap().is_none());
    assert_eq!(held(&waiter, &waiting_claim).await.token.value(), 2);
}

#[tokio::test]
async fn a_try_leaves_nothing_behind_and_listens_to_nothing() {
    let locks = Locks::new();
    let (holder, other) = (locks.connect().await, locks.connect().await);
    let held_claim = claim("x", LONG);
    held(&holder, &held_claim).await;
    assert!(busy(&other, &claim("x", LONG).queued(false)).await.wake.is_none());
    holder.release(&held_claim).await.unwrap();
    held(&holder, &claim("x", LONG)).await;
}

#[test]
fn an_acquire_whose_caller_went_away_writes_nothing_after_the_release() {
    let locks = Locks::new();
    let runtime = Runtime::new().unwrap();
    let backend = runtime.block_on(locks.connect());
    runtime.block_on(async {
        // Another process is in the way for as long as the caller waits.
        let (first, dropped) = (claim("x", LONG), claim("x", LONG));
        held(&backend, &first).await;
        backend.release(&first).await.unwrap();
        let file = File::open(locks.state_file("x")).unwrap();
        file.lock().unwrap();
        timeout(Duration::from_millis(30), backend.acquire(&dropped)).await.unwrap_err();
        drop(file);
        assert_eq!(backend.release(&dropped).await.unwrap(), Released::Absent);
    });
    // Waits for what is left on the blocking pool.
    drop(runtime);
    let token = Runtime::new().unwrap().block_on(async { held(&backend, &claim("x", LONG)).await.token });
    assert_eq!(token.value(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquire_that_is_dropped_at_any_time_is_undone_by_its_release() {
    let locks = Locks::new();
    let (backend, other) = (locks.connect().await, locks.connect().await);
    // Longer and longer, until some came too late and had to be undone.
    let mut undone = 0;
    let mut delay = Duration::ZERO;
    while undone < 10 {
        let dropped = claim("x", LONG);
        let _ = timeout(delay, backend.acquire(&dropped)).await;
        if backend.release(&dropped).await.unwrap() == Released::Released {
            undone += 1;
        }
        let next = claim("x", LONG);
        held(&other, &next).await;
        other.release(&next).await.unwrap();
        delay += Duration::from_micros(50);
    }
}
