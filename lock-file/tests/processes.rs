//! Other processes: killed, stopped, started by a holder, or in the way.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

mod support;

use std::{fs, fs::File, time::Duration};

use lock_core::{Backend, ErrorKind, Moment, Released, Renewal};
use rustix::process::Signal;
use support::*;
use tokio::time::timeout;

#[tokio::test]
#[ignore = "the holder in the other tests, not a test"]
async fn child() {
    hold_as_child().await;
}

#[tokio::test]
async fn the_lock_of_a_killed_process_is_taken_at_once_by_a_woken_waiter() {
    let locks = Locks::new();
    let mut holder = Holder::start(&locks, LONG, false);
    let (backend, claim) = (locks.connect().await, claim("x", LONG));
    let waiting = busy(&backend, &claim).await;
    assert!(waiting.recheck_within > LONG / 2);

    let started = Moment::now();
    holder.kill();
    timeout(PATIENCE, waiting.wake.expect("an inotify instance is left")).await.unwrap();
    assert_eq!(held(&backend, &claim).await.token.value(), holder.token + 1);
    // Far less than the lease.
    assert!(Moment::now().saturating_since(started) < Duration::from_secs(10));
}

#[tokio::test]
async fn many_waiters_of_a_killed_process_get_the_lock_one_after_the_other() {
    let locks = Locks::new();
    let mut holder = Holder::start(&locks, LONG, false);
    let mut waiters = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let (backend, claim) = (locks.connect().await, claim("x", LONG));
        drop(busy(&backend, &claim).await);
        waiters.spawn(async move {
            let token = acquire(&backend, &claim).await.token.value();
            assert_eq!(patiently(|| backend.release(&claim)).await, Released::Released);
            token
        });
    }
    holder.kill();
    let mut tokens = timeout(PATIENCE, waiters.join_all()).await.unwrap();
    tokens.sort_unstable();
    assert_eq!(tokens, (holder.token + 1..holder.token + 9).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_stopped_process_keeps_the_lock_for_its_lease_and_not_longer() {
    let locks = Locks::new();
    let lease = Duration::from_secs(3);
    let before = Moment::now();
    let holder = Holder::start(&locks, lease, false);
    let after = Moment::now();
    holder.signal(Signal::STOP);
    let (backend, claim) = (locks.connect().await, claim("x", LONG));
    let grant = timeout(PATIENCE, acquire(&backend, &claim)).await.unwrap();
    assert_eq!(grant.token.value(), holder.token + 1);
    assert!(Moment::now() >= before + lease);
    assert!(Moment::now() < after + lease + Duration::from_secs(10));
}

#[tokio::test]
async fn a_child_that_inherited_the_liveness_descriptor_delays_the_take_over_until_it_ends() {
    let locks = Locks::new();
    let mut holder = Holder::start(&locks, LONG, true);
    let (backend, claim) = (locks.connect().await, claim("x", LONG));
    holder.kill();
    let waiting = busy(&backend, &claim).await;
    let mut wake = waiting.wake.expect("an inotify instance is left");
    timeout(Duration::from_millis(100), &mut wake).await.unwrap_err();
    holder.kill_heir();
    timeout(PATIENCE, wake).await.unwrap();
    assert_eq!(held(&backend, &claim).await.token.value(), holder.token + 1);
}

#[tokio::test]
async fn a_child_that_inherited_the_liveness_descriptor_does_not_outlast_the_lease() {
    let locks = Locks::new();
    let mut holder = Holder::start(&locks, Duration::from_secs(5), true);
    holder.kill();
    let (backend, claim) = (locks.connect().await, claim("x", LONG));
    drop(busy(&backend, &claim).await);
    timeout(PATIENCE, acquire(&backend, &claim)).await.unwrap();
    assert!(holder.heir.is_some());
}

#[tokio::test]
async fn a_backend_that_is_dropped_in_a_living_process_keeps_its_claims_until_their_leases_end() {
    let locks = Locks::new();
    let first = locks.connect().await;
    held(&first, &claim("x", LONG)).await;
    drop(first);
    busy(&locks.connect().await, &claim("x", LONG)).await;
    assert_eq!(fs::read_dir(locks.path().join(".alive")).unwrap().count(), 0);
}

#[tokio::test]
async fn a_claim_lives_with_the_process_that_renewed_it_last() {
    let locks = Locks::new();
    let mut holder = Holder::start(&locks, LONG, false);
    let (backend, other) = (locks.connect().await, claim("x", LONG));
    assert!(matches!(backend.renew(&holder.claim).await.unwrap(), Renewal::Kept(_)));
    holder.kill();
    drop(busy(&locks.connect().await, &other).await);
    assert_eq!(held(&backend, &holder.claim).await.token.value(), holder.token);
    assert_eq!(backend.release(&holder.claim).await.unwrap(), Released::Released);
}

#[tokio::test]
async fn the_claim_of_a_killed_process_is_still_its_owners_until_it_is_taken() {
    let locks = Locks::new();
    let mut holder = Holder::start(&locks, LONG, false);
    holder.kill();
    let backend = locks.connect().await;
    assert_eq!(held(&backend, &holder.claim).await.token.value(), holder.token);
    drop(busy(&backend, &claim("x", LONG)).await);
}

#[tokio::test]
async fn nobody_outlives_a_reboot_and_the_tokens_do() {
    let locks = Locks::new();
    let (backend, before) = (locks.connect().await, claim("x", LONG));
    let token = held(&backend, &before).await.token;
    locks.pretend_reboot("x");
    assert_eq!(backend.renew(&before).await.unwrap(), Renewal::Lost);
    assert_eq!(backend.release(&before).await.unwrap(), Released::Absent);
    let after = held(&locks.connect().await, &claim("x", LONG)).await;
    assert_eq!(after.token.value(), token.value() + 1);
}

#[tokio::test]
async fn a_process_that_sits_on_the_kernel_lock_is_named() {
    let locks = Locks::new();
    let (backend, claim) = (locks.connect().await, claim("x", Duration::from_secs(8)));
    held(&backend, &claim).await;
    let file = File::open(locks.state_file("x")).unwrap();
    file.lock().unwrap();
    let started = Moment::now();
    let error = backend.renew(&claim).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    // It tries for a second, an eighth of the lease. Half of the lease is for a busy machine.
    assert!(Moment::now().saturating_since(started) < Duration::from_secs(4));
    let comm = fs::read_to_string("/proc/self/comm").unwrap();
    let named = format!("process {} ({})", std::process::id(), comm.trim_end());
    assert!(error.to_string().contains(&named), "{error}");
    assert!(error.to_string().contains("x.lock"), "{error}");
    drop(file);
    assert_eq!(backend.release(&claim).await.unwrap(), Released::Released);
}
