//! One connection: lost, silent, refused, replaced.
// Helpers are part of the tests, but the lint does not know that.
#![allow(clippy::unwrap_used)]

mod support;

use std::time::{Duration, Instant};

use lock_core::{Backend, ErrorKind, Released, Renewal};
use lock_redis::RedisBackend;
use support::{PATIENCE, Server, ask, busy, claim, connect, free_port, held, until, until_answered};

fn connections(server: &Server) -> usize {
    let clients: String = server.ask("CLIENT LIST");
    // The test's own connection is one of them.
    clients.lines().count() - 1
}

#[tokio::test]
async fn all_verbs_work_again_after_a_restart_that_kept_the_data() {
    let mut server = Server::start(&["--appendonly", "yes", "--appendfsync", "always"]);
    let backend = server.backend().await;
    let ours = claim("a");
    let token = held(&backend, &ours).await.token;
    server.kill();
    let error = backend.renew(&ours).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    server.restart();
    assert!(matches!(until_answered(|| backend.renew(&ours)).await, Renewal::Kept(_)));
    assert_eq!(held(&backend, &ours).await.token, token);
    assert_eq!(backend.release(&ours).await.unwrap(), Released::Released);
}

#[tokio::test]
async fn a_restart_that_lost_the_data_is_told_at_once_and_tokens_grow() {
    let mut server = Server::start(&[]);
    let backend = server.backend().await;
    let ours = claim("a");
    let grant = held(&backend, &ours).await;
    let mut doubt = grant.doubt.expect("a doubt signal");
    server.kill();
    doubt.raised().await;
    server.restart();
    assert_eq!(until_answered(|| backend.renew(&ours)).await, Renewal::Lost);
    assert!(held(&backend, &claim("a")).await.token > grant.token);
}

#[tokio::test]
async fn while_the_server_is_down_every_call_fails_soon_and_the_first_after_is_served() {
    let mut server = Server::start(&[]);
    let backend = server.backend().await;
    held(&backend, &claim("a")).await;
    server.kill();
    for _ in 0..20 {
        let since = Instant::now();
        let error = backend.acquire(&claim("b")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        // A pause of a quarter of a second at the most, and a dial that is refused.
        assert!(since.elapsed() < Duration::from_secs(3), "{:?}", since.elapsed());
    }
    server.restart();
    held(&backend, &claim("b")).await;
}

#[tokio::test]
async fn a_server_that_is_down_is_dialled_at_a_bounded_rate() {
    let mut server = Server::start(&[]);
    let backend = std::sync::Arc::new(server.backend().await);
    server.kill();
    let listener = std::net::TcpListener::bind(("127.0.0.1", server.port)).unwrap();
    listener.set_nonblocking(true).unwrap();
    let eager: Vec<_> = (0..10)
        .map(|_| {
            let backend = backend.clone();
            tokio::spawn(async move {
                loop {
                    let _ = backend.acquire(&claim("a")).await;
                }
            })
        })
        .collect();
    let (since, mut dials) = (Instant::now(), 0_u32);
    while since.elapsed() < Duration::from_secs(2) || dials < 5 {
        assert!(since.elapsed() < PATIENCE, "no more than {dials} dials");
        // Accepted and closed at once.
        dials += u32::from(listener.accept().is_ok());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    eager.iter().for_each(tokio::task::JoinHandle::abort);
    // Each try dials once for RESP3; four to eight tries a second at the longest pause.
    assert!(f64::from(dials) / since.elapsed().as_secs_f64() < 20.0, "{dials} in {:?}", since.elapsed());
}

#[tokio::test]
async fn a_killed_connection_is_replaced() {
    let server = Server::start(&[]);
    let backend = server.backend().await;
    let ours = claim("a");
    held(&backend, &ours).await;
    for _ in 0..5 {
        server.ask::<i64>("CLIENT KILL TYPE normal SKIPME yes");
        // A connection with a subscription counts as another type.
        server.ask::<i64>("CLIENT KILL TYPE pubsub");
        assert!(matches!(until_answered(|| backend.renew(&ours)).await, Renewal::Kept(_)));
        assert_eq!(connections(&server), 1);
    }
}

#[tokio::test]
async fn an_idle_connection_that_the_server_closed_is_replaced() {
    let server = Server::start(&[]);
    let backend = server.backend().await;
    let ours = claim("a");
    held(&backend, &ours).await;
    server.ask::<()>("CONFIG SET timeout 1");
    until("the server closed the idle connection", || connections(&server) == 0).await;
    assert!(matches!(until_answered(|| backend.renew(&ours)).await, Renewal::Kept(_)));
    assert_eq!(backend.release(&ours).await.unwrap(), Released::Released);
}

#[tokio::test]
async fn a_silent_connection_is_replaced_when_requests_were_given_up() {
    let server = Server::start(&[]);
    let backend = RedisBackend::connect(server.options()).await.unwrap();
    let ours = claim("a");
    held(&backend, &ours).await;
    let before: Vec<i64> = client_ids(&server);
    server.pause();
    for _ in 0..2 {
        let limit = Duration::from_millis(200);
        assert!(tokio::time::timeout(limit, backend.renew(&ours)).await.is_err());
    }
    // Now a call waits for a new connection, and fails when that cannot be had in time.
    let error = tokio::time::timeout(support::PATIENCE, backend.renew(&ours)).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    server.resume();
    assert!(matches!(until_answered(|| backend.renew(&ours)).await, Renewal::Kept(_)));
    assert!(client_ids(&server).iter().all(|id| !before.contains(id)), "the old connection is still there");
}

fn client_ids(server: &Server) -> Vec<i64> {
    let mut admin = server.admin();
    let own: i64 = ask(&mut admin, "CLIENT ID");
    let clients: String = ask(&mut admin, "CLIENT LIST");
    let ids = clients.lines().map(|line| line[3..].split(' ').next().unwrap().parse().unwrap());
    ids.filter(|id| *id != own).collect()
}

#[tokio::test]
async fn requests_dropped_in_a_hurry_do_not_cost_the_connection() {
    /// After so long it is no hurry any more: the connection may be taken for dead.
    const SILENCE: Duration = Duration::from_millis(250);
    let server = Server::start(&[]);
    let backend = server.backend().await;
    held(&backend, &claim("a")).await;
    let before = client_ids(&server);
    let mut longest = Duration::ZERO;
    for _ in 0..200 {
        let (claim, since) = (claim("b"), Instant::now());
        tokio::select! {
            biased;
            _ = backend.acquire(&claim) => {}
            () = tokio::task::yield_now() => {}
        }
        until_answered(|| backend.release(&claim)).await;
        longest = longest.max(since.elapsed());
    }
    if longest < SILENCE {
        assert_eq!(client_ids(&server), before);
    }
    held(&backend, &claim("b")).await;
}

#[tokio::test]
async fn a_primary_that_became_a_replica_is_left_and_served_again_when_it_is_back() {
    let server = Server::start(&[]);
    let backend = server.backend().await;
    let ours = claim("a");
    held(&backend, &ours).await;
    let before = client_ids(&server);
    server.ask::<()>(&format!("REPLICAOF 127.0.0.1 {}", free_port()));
    let error = backend.renew(&ours).await.unwrap_err();
    assert_eq!((error.kind(), error.is_transient()), (ErrorKind::Unavailable, true), "{error}");
    assert!(error.to_string().contains("READONLY"), "{error}");
    server.ask::<()>("REPLICAOF NO ONE");
    assert!(matches!(until_answered(|| backend.renew(&ours)).await, Renewal::Kept(_)));
    assert!(client_ids(&server).iter().all(|id| !before.contains(id)));
}

#[tokio::test]
async fn no_server_is_an_error_at_once() {
    let url = format!("redis://127.0.0.1:{}?connect_timeout=30s", free_port());
    let since = Instant::now();
    let error = connect(&url).await.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(since.elapsed() < Duration::from_secs(10), "{:?}", since.elapsed());
}

#[tokio::test]
async fn dropping_the_backend_closes_its_connection_and_ends_its_tasks() {
    let server = Server::start(&[]);
    let files = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    drop(server.backend().await);
    until("the first connection is gone", || connections(&server) == 0).await;
    let (files_before, tasks_before) = (files(), tasks());
    for round in 0..100 {
        let backend = server.backend().await;
        let name = format!("name {}", round % 3);
        let ours = claim(&name);
        held(&backend, &ours).await;
        let waiter = claim(&name);
        let told = busy(&backend, &waiter).await;
        backend.release(&ours).await.unwrap();
        drop(told);
        backend.release(&waiter).await.unwrap();
    }
    until("all connections are gone", || connections(&server) == 0).await;
    until("all tasks have ended", || tasks() == tasks_before).await;
    assert_eq!(files(), files_before);
}

#[test]
fn the_connection_outlives_the_runtime_of_the_one_who_asked() {
    let server = Server::start(&[]);
    let new_runtime = || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let own = new_runtime().unwrap();
    let backend = own.block_on(server.backend());
    server.ask::<i64>("CLIENT KILL TYPE pubsub");
    let ours = claim("a");
    let guest = new_runtime().unwrap();
    guest.block_on(until_answered(|| backend.renew(&ours)));
    drop(guest);
    own.block_on(async { held(&backend, &ours).await });
    assert_eq!(own.block_on(async { client_ids(&server).len() }), 1);
    drop(own);
    let late = new_runtime().unwrap();
    let error = late.block_on(backend.renew(&ours)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoRuntime, "{error}");
}

#[test]
fn connecting_outside_a_runtime_is_an_error() {
    let connecting = std::pin::pin!(RedisBackend::connect(lock_redis::RedisOptions::new("127.0.0.1")));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match connecting.poll(&mut context) {
        std::task::Poll::Ready(Err(error)) => assert_eq!(error.kind(), ErrorKind::NoRuntime),
        other => panic!("{other:?}"),
    }
}
