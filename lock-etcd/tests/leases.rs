//! Leases and writes, counted by the server.
// Helpers are part of the tests, but the lint does not know that.
#![allow(clippy::unwrap_used)]

mod support;

use std::{sync::Arc, time::Duration};

use etcd_client::{Client, LeaseTimeToLiveOptions};
use lock_core::{Attempt, Backend, Released, Renewal};
use lock_etcd::{EtcdBackend, EtcdOptions};
use support::{
    PATIENCE, Relay, Server, busy, claim, claim_for, held, keys, leases, soon, until_answered, until_leases,
};
use tokio::task::JoinSet;

/// The revision, and how many entries raft has made.
async fn writes(admin: &mut Client) -> (i64, u64) {
    let status = admin.status().await.unwrap();
    (status.header().unwrap().revision(), status.raft_index())
}

#[tokio::test]
async fn an_uncontended_pair_is_two_writes() {
    let server = Server::start(&[]);
    let (backend, mut admin) = (server.backend().await, server.admin().await);
    let warm = claim("a");
    held(&backend, &warm).await;
    backend.release(&warm).await.unwrap();
    let (revision, raft) = writes(&mut admin).await;
    for round in 1..=10 {
        let claim = claim("a");
        held(&backend, &claim).await;
        assert_eq!(backend.release(&claim).await.unwrap(), Released::Released);
        let (now, raft_now) = writes(&mut admin).await;
        assert_eq!((now - revision, raft_now - raft), (2 * round, 2 * round as u64));
    }
}

#[tokio::test]
async fn a_hundred_failing_tries_leave_no_lease_behind() {
    let server = Server::start(&[]);
    let (holder, backend, mut admin) = (server.backend().await, server.backend().await, server.admin().await);
    let taken = claim("a");
    held(&holder, &taken).await;
    busy(&backend, &claim("a").queued(false)).await;
    let base = leases(&mut admin).await;
    for _ in 0..100 {
        busy(&backend, &claim("a").queued(false)).await;
    }
    assert_eq!(leases(&mut admin).await, base);
    assert_eq!(keys(&mut admin).await.len(), 1);
}

#[tokio::test]
async fn idle_leases_are_few_and_go_with_the_backend() {
    let server = Server::start(&[]);
    let (backend, mut admin) = (server.backend().await, server.admin().await);
    let claims: Vec<_> = (0..20).map(|i| claim(&format!("n{i}"))).collect();
    for claim in &claims {
        held(&backend, claim).await;
    }
    assert_eq!(leases(&mut admin).await, 20);
    for claim in &claims {
        backend.release(claim).await.unwrap();
    }
    until_leases(&mut admin, 8).await;
    drop(backend);
    until_leases(&mut admin, 0).await;
}

/// While some are topped up, others come back, and take their room.
#[tokio::test]
async fn idle_leases_that_are_topped_up_are_no_more_than_the_others() {
    let server = Server::start(&[]);
    let relay = Relay::to(server.address()).await;
    let options = EtcdOptions::new([&relay.address]).unwrap().connect_timeout(PATIENCE);
    let backend = Arc::new(EtcdBackend::connect(options).await.unwrap());
    let mut admin = server.admin().await;
    let mut early: Vec<_> = (0..16).map(|i| claim_for(&format!("n{i}"), Duration::from_secs(12))).collect();
    for claim in &early {
        held(&*backend, claim).await;
    }
    let late = early.split_off(8);
    for claim in &early {
        backend.release(claim).await.unwrap();
    }
    relay.hold_answers(true);
    let topped_up = server.messages_of("LeaseKeepAlive");
    let mut releases = JoinSet::new();
    for claim in late {
        let backend = backend.clone();
        releases.spawn(async move { backend.release(&claim).await.unwrap() });
    }
    // The answers to these come first.
    soon("the late ones' keys deleted", async {
        while !keys(&mut admin).await.is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    soon("the early ones' leases topped up", async {
        while server.messages_of("LeaseKeepAlive") < topped_up + 8 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    relay.hold_answers(false);
    soon("the late ones released", releases.join_all()).await;
    until_leases(&mut admin, 8).await;
}

#[tokio::test]
async fn an_idle_lease_is_kept_for_the_next_claim() {
    let server = Server::start(&[]);
    let (backend, mut admin) = (server.backend().await, server.admin().await);
    let brief = || claim_for("a", Duration::from_secs(2));
    let first = brief();
    held(&backend, &first).await;
    backend.release(&first).await.unwrap();
    let before = admin.leases().await.unwrap().leases()[0].id();
    // Half as long again as it lives without being topped up.
    tokio::time::sleep(Duration::from_secs(4)).await;
    let next = brief();
    let lease = held(&backend, &next).await.lease;
    assert_eq!(admin.leases().await.unwrap().leases()[0].id(), before);
    assert_eq!(lease.length, Duration::from_secs(2));
    let told = admin.lease_time_to_live(before, None::<LeaseTimeToLiveOptions>).await.unwrap();
    assert!(told.ttl() >= 1, "{} s are left", told.ttl());
}

/// Dropped at every await: what is left of the claim ends with its release, and its lease too.
#[tokio::test]
async fn a_dropped_acquire_is_cleaned_up_by_its_release() {
    let server = Server::start(&[]);
    let (backend, mut admin) = (server.backend().await, server.admin().await);
    for microseconds in (0..6_000).step_by(300) {
        let claim = claim_for("a", Duration::from_secs(600));
        let limit = Duration::from_micros(microseconds);
        let _ = tokio::time::timeout(limit, backend.acquire(&claim)).await;
        until_answered(|| backend.release(&claim)).await;
        assert_eq!(keys(&mut admin).await, [""; 0], "after {limit:?}");
    }
    drop(backend);
    until_leases(&mut admin, 0).await;
}

#[tokio::test]
async fn a_lease_serves_no_other_claim_after_an_unknown_outcome() {
    let mut server = Server::start(&[]);
    let (backend, mut admin) = (server.backend().await, server.admin().await);
    let warm = claim("warm");
    held(&backend, &warm).await;
    backend.release(&warm).await.unwrap();
    let pooled = admin.leases().await.unwrap().leases()[0].id();

    // The server gets the request, and nobody waits for what it says.
    server.pause();
    let doubtful = claim("a");
    assert!(tokio::time::timeout(Duration::from_millis(100), backend.acquire(&doubtful)).await.is_err());
    server.resume();
    until_answered(|| backend.release(&doubtful)).await;
    let next = claim("a");
    let granted = until_answered(|| backend.acquire(&next)).await;
    assert!(matches!(granted, Attempt::Held(_)), "{granted:?}");
    let left: Vec<_> = admin.leases().await.unwrap().leases().iter().map(|lease| lease.id()).collect();
    assert!(!left.contains(&pooled), "{pooled} of {left:?} was used again");
    server.kill();
}

#[tokio::test]
async fn a_revoked_lease_is_a_loss_to_its_holder_alone() {
    let server = Server::start(&[]);
    let (backend, mut admin) = (server.backend().await, server.admin().await);
    let (one, other) = (claim("a"), claim("b"));
    held(&backend, &one).await;
    let lease = admin.leases().await.unwrap().leases()[0].id();
    held(&backend, &other).await;
    admin.lease_revoke(lease).await.unwrap();
    assert_eq!(backend.renew(&one).await.unwrap(), Renewal::Lost);
    assert!(matches!(backend.renew(&other).await.unwrap(), Renewal::Kept(_)));
}
