//! Waiters are told of a release, and nothing stays subscribed for them.
// Helpers are part of the tests, but the lint does not know that.
#![allow(clippy::unwrap_used)]

mod support;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use lock_core::{Backend, Busy, Released, Wakeup};
use lock_redis::{Protocol, RedisBackend};
use support::{PATIENCE, Server, busy, claim, connect, held, until};
use tokio::sync::Barrier;

async fn woken(busy: Busy) {
    let wake = busy.wake.expect("a wake");
    assert!(tokio::time::timeout(PATIENCE, wake).await.expect("woken").is_none());
}

fn channels(server: &Server) -> Vec<String> {
    server.ask("PUBSUB CHANNELS")
}

#[tokio::test]
async fn a_release_wakes_a_waiter_of_another_process_at_once() {
    let server = Server::start(&[]);
    let (here, there) = (server.backend().await, server.backend().await);
    assert_eq!(here.guarantees().wakeup, Wakeup::Push);
    let (holder, waiter) = (claim("a"), claim("a"));
    held(&here, &holder).await;
    let told = busy(&there, &waiter).await;
    assert!(told.recheck_within > Duration::from_secs(9));
    let since = Instant::now();
    here.release(&holder).await.unwrap();
    woken(told).await;
    assert!(since.elapsed() < Duration::from_secs(1), "{:?}", since.elapsed());
    held(&there, &waiter).await;
}

#[tokio::test]
async fn busy_is_answered_after_the_subscription_stands() {
    let server = Server::start(&[]);
    let backend = server.backend().await;
    held(&backend, &claim("a")).await;
    let _told = busy(&backend, &claim("a")).await;
    assert!(channels(&server).contains(&"polylock:{a}:wake".into()), "{:?}", channels(&server));
}

#[tokio::test]
async fn a_release_between_the_answer_and_the_wait_is_heard() {
    let server = Server::start(&[]);
    let backend = server.backend().await;
    let (holder, waiter) = (claim("a"), claim("a"));
    held(&backend, &holder).await;
    // Once with a new subscription, once with one that stands already.
    for _ in 0..2 {
        let told = busy(&backend, &waiter).await;
        backend.release(&holder).await.unwrap();
        woken(told).await;
        held(&backend, &holder).await;
    }
}

#[tokio::test]
async fn nothing_stays_subscribed_when_the_waiters_are_gone() {
    let server = Server::start(&[]);
    let backend = server.backend().await;
    for round in 0..50 {
        let name = format!("name {}", round % 7);
        let (holder, waiter) = (claim(&name), claim(&name));
        held(&backend, &holder).await;
        let told = busy(&backend, &waiter).await;
        if round % 2 == 0 {
            drop(told);
            backend.release(&holder).await.unwrap();
        } else {
            backend.release(&holder).await.unwrap();
            woken(told).await;
        }
    }
    assert!(!channels(&server).is_empty());
    until("no channel is left", || channels(&server).is_empty()).await;
    // The connection still serves, and still wakes.
    let (holder, waiter) = (claim("name 1"), claim("name 1"));
    held(&backend, &holder).await;
    let told = busy(&backend, &waiter).await;
    backend.release(&holder).await.unwrap();
    woken(told).await;
}

#[tokio::test]
async fn a_name_with_a_waiter_stays_subscribed() {
    let server = Server::start(&[]);
    let backend = server.backend().await;
    let holder = claim("a");
    held(&backend, &holder).await;
    let told = busy(&backend, &claim("a")).await;
    // Longer than an unused channel stays: the probe of the connection's start has gone.
    until("the probe's channel is gone", || channels(&server) == ["polylock:{a}:wake"]).await;
    backend.release(&holder).await.unwrap();
    woken(told).await;
}

#[tokio::test]
async fn a_try_subscribes_to_nothing() {
    let server = Server::start(&[]);
    let backend = server.backend().await;
    held(&backend, &claim("a")).await;
    assert!(busy(&backend, &claim("a").queued(false)).await.wake.is_none());
    assert!(!channels(&server).contains(&"polylock:{a}:wake".into()));
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
async fn without_resp3_locks_work_and_waiters_poll() {
    let plain = Server::start(&[]);
    // A server that does not know the greeting, as before version 6.
    let old = Server::start(&["--rename-command", "HELLO", ""]);
    let resp2 = RedisBackend::connect(plain.options().protocol(Protocol::Resp2)).await.unwrap();
    for (backend, server) in [(resp2, &plain), (old.backend().await, &old)] {
        assert_eq!(backend.guarantees().wakeup, Wakeup::Poll);
        let (holder, waiter) = (claim("a"), claim("a"));
        held(&backend, &holder).await;
        let told = busy(&backend, &waiter).await;
        assert!(told.wake.is_none());
        assert!(told.recheck_within > Duration::from_secs(9));
        assert!(channels(server).is_empty());
        assert_eq!(backend.release(&holder).await.unwrap(), Released::Released);
        held(&backend, &waiter).await;
    }
    let error = connect(&format!("{}?protocol=resp3", old.url())).await.map(drop).unwrap_err();
    assert_eq!(error.kind(), lock_core::ErrorKind::Unsupported, "{error}");
}

#[tokio::test]
async fn a_user_who_may_not_use_channels_locks_and_releases() {
    let server = Server::start(&[]);
    server.ask::<()>("ACL SETUSER quiet on >pass ~polylock:* resetchannels +@all");
    let backend = RedisBackend::connect(server.options().user("quiet").password("pass")).await.unwrap();
    assert_eq!(backend.guarantees().wakeup, Wakeup::Poll);
    let (holder, waiter) = (claim("a"), claim("a"));
    held(&backend, &holder).await;
    assert!(busy(&backend, &waiter).await.wake.is_none());
    assert_eq!(backend.release(&holder).await.unwrap(), Released::Released);
    held(&backend, &waiter).await;
}

#[tokio::test]
async fn one_release_wakes_all_who_wait() {
    let server = Server::start(&[]);
    let backend = Arc::new(server.backend().await);
    let holder = claim("a");
    held(&backend, &holder).await;
    let all_wait = Arc::new(Barrier::new(51));
    let waiters: Vec<_> = (0..50)
        .map(|_| {
            let (backend, all_wait) = (Arc::clone(&backend), Arc::clone(&all_wait));
            tokio::spawn(async move {
                let told = busy(&backend, &claim("a")).await;
                all_wait.wait().await;
                woken(told).await;
            })
        })
        .collect();
    all_wait.wait().await;
    backend.release(&holder).await.unwrap();
    for waiter in waiters {
        waiter.await.unwrap();
    }
}
