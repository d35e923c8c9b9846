//! What happens to holders and waiters when the server has its troubles.
// Helpers are part of the tests, but the lint does not know that.
#![allow(clippy::unwrap_used)]

mod support;

use std::time::Duration;

use lock_core::{Attempt, Backend, ErrorKind, Locks, Options, Released, Renewal};
use support::{PATIENCE, Server, busy, claim, claim_for, held, held_at_last, keys, soon, until_answered};

#[tokio::test]
async fn a_waiter_outlives_a_compaction() {
    let server = Server::start(&[]);
    let (backend, mut admin) = (server.backend().await, server.admin().await);
    let (holder, waiter) = (claim("a"), claim("a"));
    held(&backend, &holder).await;
    let told = busy(&backend, &waiter).await;
    for i in 0..50 {
        admin.put("other", i.to_string(), None).await.unwrap();
    }
    let revision = admin.status().await.unwrap().header().unwrap().revision();
    admin.compact(revision, None).await.unwrap();
    backend.release(&holder).await.unwrap();
    soon("the wake", told.wake.unwrap()).await;
    held(&backend, &waiter).await;
}

/// Its lease is revoked while it waits: it wakes at once, and stands at the end of the queue.
#[tokio::test]
async fn a_waiter_that_lost_its_place_takes_a_new_one() {
    let server = Server::start(&[]);
    let (first, second, mut admin) = (server.backend().await, server.backend().await, server.admin().await);
    let (holder, waiter, last) = (claim("a"), claim("a"), claim("a"));
    held(&first, &holder).await;
    let told = busy(&second, &waiter).await;
    busy(&first, &last).await;
    let key = lock_etcd_key(&server, &waiter);
    let lease = admin.get(&*key, None).await.unwrap().kvs()[0].lease();
    admin.lease_revoke(lease).await.unwrap();
    soon("the wake", told.wake.unwrap()).await;
    let told = busy(&second, &waiter).await;
    first.release(&holder).await.unwrap();
    held(&first, &last).await;
    first.release(&last).await.unwrap();
    soon("the wake", told.wake.unwrap()).await;
    held(&second, &waiter).await;
}

/// One in the middle goes: those behind it have others in front all the same.
#[tokio::test]
async fn a_waiter_that_gives_up_lets_nobody_pass() {
    let server = Server::start(&[]);
    let [first, second, third] = [server.backend().await, server.backend().await, server.backend().await];
    let (holder, middle, last) = (claim("a"), claim("a"), claim("a"));
    held(&first, &holder).await;
    busy(&second, &middle).await;
    let told = busy(&third, &last).await;
    let mut wake = told.wake.unwrap();
    assert_eq!(second.release(&middle).await.unwrap(), Released::Released);
    let early = tokio::time::timeout(Duration::from_millis(200), &mut wake).await;
    assert!(early.is_err(), "woken though the lock is held");
    busy(&third, &last).await;
    first.release(&holder).await.unwrap();
    soon("the wake", wake).await;
    held(&third, &last).await;
}

fn lock_etcd_key(server: &Server, claim: &lock_core::Claim) -> String {
    format!("{}/{}", support::lock_name(server, claim.name.as_str()), claim.owner.to_hex())
}

/// A waiter whose ttl is shorter than the wait holds a lease of its own in the end.
#[tokio::test]
async fn a_place_in_the_queue_is_kept_for_longer_than_its_lease() {
    let server = Server::start(&[]);
    let (backend, mut admin) = (server.backend().await, server.admin().await);
    let holder = claim("a");
    held(&backend, &holder).await;
    let options = Options::default().with_ttl(Duration::from_secs(1));
    let locks = Locks::with_options(server.backend().await, options).unwrap();
    let lock = locks.lock("a").unwrap();
    let waiting = tokio::spawn(async move { lock.acquire().await });
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(keys(&mut admin).await.len(), 2);
    backend.release(&holder).await.unwrap();
    let guard = soon("the lock", waiting).await.unwrap().unwrap();
    assert!(guard.is_held());
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_frozen_server_ends_no_claim_and_is_asked_again() {
    let server = Server::start(&[]);
    let (backend, other) = (server.backend().await, server.backend().await);
    let (ours, waiter) = (claim_for("a", Duration::from_secs(60)), claim("a"));
    let token = held(&backend, &ours).await.token;
    let told = busy(&other, &waiter).await;
    server.pause();
    for _ in 0..3 {
        let renewed = tokio::time::timeout(Duration::from_millis(200), backend.renew(&ours)).await;
        assert!(!matches!(renewed, Ok(Ok(_))), "{renewed:?} from a frozen server");
    }
    server.resume();
    assert!(matches!(until_answered(|| backend.renew(&ours)).await, Renewal::Kept(_)));
    match until_answered(|| backend.acquire(&ours)).await {
        Attempt::Held(grant) => assert_eq!(grant.token, token),
        other => panic!("{other:?}"),
    }
    until_answered(|| backend.release(&ours)).await;
    soon("the wake", told.wake.unwrap()).await;
    held_at_last(&other, &waiter).await;
}

/// Nothing new is granted, what is held stays held, and releases work.
#[tokio::test]
async fn a_full_server_grants_nothing_and_takes_nothing() {
    let server = Server::start(&["--quota-backend-bytes", "1000000"]);
    let (backend, mut admin) = (server.backend().await, server.admin().await);
    let ours = claim("a");
    let token = held(&backend, &ours).await.token;
    let big = vec![0_u8; 400_000];
    let mut number = 0;
    while admin.put(format!("filler/{number}"), big.clone(), None).await.is_ok() {
        number += 1;
        assert!(number < 100, "it is never full");
    }
    let refused = backend.acquire(&claim("b")).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
    assert!(refused.is_transient() && refused.to_string().contains("space"), "{refused}");
    assert!(matches!(backend.renew(&ours).await.unwrap(), Renewal::Kept(_)));
    assert_eq!(held(&backend, &ours).await.token, token);
    assert_eq!(backend.release(&ours).await.unwrap(), Released::Released);
}

#[tokio::test]
async fn a_claim_survives_the_servers_restart() {
    let mut server = Server::start(&[]);
    let backend = server.backend().await;
    let (ours, waiter) = (claim("a"), claim("a"));
    let token = held(&backend, &ours).await.token;
    busy(&backend, &waiter).await;
    server.kill();
    assert!(backend.renew(&ours).await.unwrap_err().is_transient());
    server.restart();
    assert!(matches!(until_answered(|| backend.renew(&ours)).await, Renewal::Kept(_)));
    until_answered(|| backend.release(&ours)).await;
    assert!(held_at_last(&backend, &waiter).await.token > token);
}

#[tokio::test]
async fn without_a_server_connecting_says_so() {
    let mut server = Server::start(&[]);
    server.kill();
    let error = support::connect(&server.url()).await.map(drop).unwrap_err();
    assert_eq!((error.kind(), error.is_transient()), (ErrorKind::Unavailable, true), "{error}");
}

#[tokio::test]
async fn a_key_that_lost_its_lease_is_foreign_and_can_be_released() {
    let server = Server::start(&[]);
    let (backend, mut admin) = (server.backend().await, server.admin().await);
    let ours = claim("a");
    held(&backend, &ours).await;
    admin.put(lock_etcd_key(&server, &ours), "by hand", None).await.unwrap();
    assert_eq!(backend.renew(&ours).await.unwrap_err().kind(), ErrorKind::Foreign);
    assert_eq!(backend.release(&ours).await.unwrap(), Released::Released);
    let next = tokio::time::timeout(PATIENCE, backend.acquire(&claim("a"))).await.unwrap().unwrap();
    assert!(matches!(next, Attempt::Held(_)), "{next:?}");
}
