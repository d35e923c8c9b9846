//! What users do that pools and new tables must bear.
// Helpers are part of the tests, but the lint does not know that.
#![allow(clippy::unwrap_used)]

mod support;

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use lock_core::{Backend, Locks, Release, Released};
use lock_mysql::MysqlBackend;
use support::{Kind, PATIENCE, Server, busy, claim, held, until};
use tokio::{task::JoinSet, time::timeout};

async fn backend_with(server: &Server, connections: u32) -> MysqlBackend {
    let options = server.options().connections(connections).unwrap();
    MysqlBackend::connect(options.connect_timeout(PATIENCE)).await.unwrap()
}

on_both!(holders_and_waiters_share_a_small_pool, flavor = "multi_thread", worker_threads = 2);
async fn holders_and_waiters_share_a_small_pool(kind: Kind) {
    let server = Server::start(kind, &[]);
    let locks = Locks::new(backend_with(&server, 4).await).unwrap();
    let names: Vec<_> = (0..10).map(|number| number.to_string()).collect();
    let free: Vec<_> = names.iter().map(|name| locks.lock(name).unwrap()).collect();
    let guards: Vec<_> = join_all(free.iter().map(|lock| lock.acquire()))
        .await
        .into_iter()
        .map(|guard| guard.unwrap())
        .collect();
    // Two wait for each of them.
    let mut waiters = JoinSet::new();
    for name in names.iter().chain(&names) {
        let lock = locks.lock(name).unwrap();
        waiters.spawn(async move { lock.acquire().await?.release().await });
    }
    until("all wait", || locks.statistics().waiting == 20).await;
    assert!(guards.iter().all(|guard| guard.is_held()));
    for released in join_all(guards.into_iter().map(|guard| guard.release())).await {
        assert_eq!(released.unwrap(), Release::Released);
    }
    for released in timeout(PATIENCE, waiters.join_all()).await.expect("all get their locks") {
        assert_eq!(released.unwrap(), Release::Released);
    }
    let told = locks.statistics();
    assert_eq!((told.acquired, told.released, told.lost, told.abandoned), (30, 30, 0, 0), "{told:?}");
    until("a pool of four, and one to be woken by", || server.connections() <= 5).await;
}

on_both!(a_release_while_the_pool_is_exhausted_is_done);
async fn a_release_while_the_pool_is_exhausted_is_done(kind: Kind) {
    let server = Server::start(kind, &[]);
    let backend = Arc::new(backend_with(&server, 2).await);
    let mut ours = claim("ours");
    ours.lease = 2 * PATIENCE;
    for claim in [&ours, &claim("a")] {
        held(&*backend, claim).await;
    }
    // All connections wait for a stranger.
    let stranger = server.stranger("a").await;
    let mut blocked = JoinSet::new();
    for _ in 0..4 {
        let backend = backend.clone();
        blocked.spawn(async move { backend.acquire(&claim("a")).await });
    }
    until("an exhausted pool", || server.status("Innodb_row_lock_current_waits") == 2).await;
    assert_eq!(backend.release(&ours).await.unwrap(), Released::Released);
    let owner = "SELECT COUNT(*) FROM polylock WHERE name = 'ours' AND owner IS NOT NULL";
    assert_eq!(server.sql(owner).trim(), "0", "it is free on the server");
    stranger.leave();
    blocked.join_all().await;
    held(&server.backend().await, &claim("ours")).await;
}

on_both!(many_clients_at_once_make_the_tables, flavor = "multi_thread", worker_threads = 2);
async fn many_clients_at_once_make_the_tables(kind: Kind) {
    let server = Server::start(kind, &[]);
    // The first time MySQL takes long to know each of them.
    for table in ["locks_1", "locks_2", "locks_3", "locks_4"] {
        let mut clients = JoinSet::new();
        for _ in 0..20 {
            let options = server.options().table(table).unwrap();
            clients.spawn(MysqlBackend::connect(options.connect_timeout(PATIENCE)));
        }
        for backend in clients.join_all().await {
            let (backend, ours) = (backend.unwrap(), claim("a"));
            held(&backend, &ours).await;
            assert_eq!(backend.release(&ours).await.unwrap(), Released::Released);
        }
        let rows = server.sql(&format!("SELECT COUNT(*), MIN(owner IS NULL) FROM {table}"));
        assert_eq!(rows.trim(), "1\t1", "all had the same lock");
    }
}

on_both!(places_that_have_run_out_are_cleared_away);
async fn places_that_have_run_out_are_cleared_away(kind: Kind) {
    let server = Server::start(kind, &[]);
    let (first, second) = (server.backend().await, server.backend().await);
    let (ours, living) = (claim("a"), claim("a"));
    let dies = || {
        let mut claim = claim("a");
        claim.lease = Duration::from_millis(100);
        claim
    };
    let has_run_out = "SELECT COUNT(*) FROM polylock_queue WHERE deadline <= UTC_TIMESTAMP(6)";
    let places = "SELECT waiting, (SELECT COUNT(*) FROM polylock_queue) FROM polylock";

    held(&first, &ours).await;
    busy(&second, &living).await;
    busy(&second, &dies()).await;
    until("a dead waiter", || server.sql(has_run_out).trim() != "0").await;
    // One that asks once more clears them away,
    busy(&second, &living).await;
    assert_eq!(server.sql(places).trim(), "1\t1");
    // and so does who finds the lock free.
    assert_eq!(second.release(&living).await.unwrap(), Released::Released);
    busy(&second, &dies()).await;
    until("another one", || server.sql(has_run_out).trim() != "0").await;
    assert_eq!(first.release(&ours).await.unwrap(), Released::Released);
    held(&second, &claim("a")).await;
    assert_eq!(server.sql(places).trim(), "0\t0");
}
