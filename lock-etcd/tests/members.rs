//! Three members, of which some fail.
// Helpers are part of the tests, but the lint does not know that.
#![allow(clippy::unwrap_used)]

mod support;

use std::time::{Duration, Instant};

use lock_core::{Backend, Locks, Options, Renewal};
use lock_etcd::{EtcdBackend, EtcdOptions};
use support::{PATIENCE, Server, busy, claim_for, held, held_at_last, soon, until_answered};

async fn backend_of(servers: &[Server]) -> EtcdBackend {
    EtcdBackend::connect(EtcdOptions::new(servers.iter().map(Server::address)).unwrap()).await.unwrap()
}

/// Which of them leads.
async fn leader(servers: &[Server]) -> usize {
    let since = Instant::now();
    loop {
        for (index, server) in servers.iter().enumerate() {
            let status = server.admin().await.status().await.unwrap();
            if status.leader() != 0 && status.leader() == status.header().unwrap().member_id() {
                return index;
            }
        }
        assert!(since.elapsed() < PATIENCE, "no leader");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn holder_and_waiter_outlive_the_leader() {
    let mut servers = Server::cluster::<3>();
    let leader = leader(&servers).await;
    let (backend, other) = (backend_of(&servers).await, backend_of(&servers).await);
    let (ours, waiter) = (claim_for("a", Duration::from_secs(20)), claim_for("a", Duration::from_secs(20)));
    let token = held(&backend, &ours).await.token;
    busy(&other, &waiter).await;
    servers[leader].kill();
    assert!(matches!(until_answered(|| backend.renew(&ours)).await, Renewal::Kept(_)));
    until_answered(|| backend.release(&ours)).await;
    assert!(held_at_last(&other, &waiter).await.token > token);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_member_is_passed_over_without_an_error() {
    let mut servers = Server::cluster::<3>();
    let backend = backend_of(&servers).await;
    servers[0].kill();
    soon("another leader", leader(&servers[1..])).await;
    let fresh = backend_of(&servers).await;
    held(&fresh, &claim_for("a", Duration::from_secs(10))).await;
    // Its connection was open: the first word may be an error, the next is not.
    let ours = claim_for("b", Duration::from_secs(10));
    held_at_last(&backend, &ours).await;
    backend.release(&ours).await.unwrap();
}

/// The member that is asked, and that may lead, is stopped for longer than the ttl.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_kept_while_its_member_is_frozen() {
    let servers = Server::cluster::<3>();
    let leader = leader(&servers).await;
    let order = [&servers[leader], &servers[(leader + 1) % 3], &servers[(leader + 2) % 3]];
    let backend = EtcdBackend::connect(EtcdOptions::new(order.map(Server::address)).unwrap()).await.unwrap();
    let ttl = Duration::from_secs(10);
    let locks = Locks::with_options(backend, Options::default().with_ttl(ttl)).unwrap();
    let guard = locks.lock("a").unwrap().acquire().await.unwrap();
    servers[leader].pause();
    tokio::time::sleep(ttl + ttl / 5).await;
    assert!(guard.is_held(), "lost: {}", guard.lost().await);
    servers[leader].resume();
    guard.release().await.unwrap();
}
