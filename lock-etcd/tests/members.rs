//! Three members, of which some fail: of the etcd that is installed, and of another if there is one.
// Helpers are part of the tests, but the lint does not know that.
#![allow(clippy::unwrap_used)]

mod support;

use std::time::{Duration, Instant};

use lock_core::{Backend, Locks, Options, Renewal};
use lock_etcd::{EtcdBackend, EtcdOptions};
use support::{PATIENCE, Server, busy, claim_for, held, held_at_last, programs, soon, until_answered};

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
    for program in programs() {
        let mut servers = Server::cluster::<3>(&program);
        let leader = leader(&servers).await;
        let (backend, other) = (backend_of(&servers).await, backend_of(&servers).await);
        let claim = || claim_for("a", Duration::from_secs(20));
        let (ours, waiter) = (claim(), claim());
        let token = held(&backend, &ours).await.token;
        busy(&other, &waiter).await;
        servers[leader].kill();
        assert!(matches!(until_answered(|| backend.renew(&ours)).await, Renewal::Kept(_)));
        until_answered(|| backend.release(&ours)).await;
        assert!(held_at_last(&other, &waiter).await.token > token);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_member_is_passed_over_without_an_error() {
    for program in programs() {
        let mut servers = Server::cluster::<3>(&program);
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
}

/// The member that is asked, and that may lead, is stopped for longer than the ttl. The lock is kept, and
/// goes to the next in line while that member is still away.
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_kept_and_handed_on_while_its_member_is_frozen() {
    for program in programs() {
        let servers = Server::cluster::<3>(&program);
        let leader = leader(&servers).await;
        let order = [&servers[leader], &servers[(leader + 1) % 3], &servers[(leader + 2) % 3]];
        let ttl = Duration::from_secs(10);
        let locks = || async {
            let options = EtcdOptions::new(order.map(Server::address)).unwrap();
            let backend = EtcdBackend::connect(options).await.unwrap();
            Locks::with_options(backend, Options::default().with_ttl(ttl)).unwrap()
        };
        let (holder, waiter) = (locks().await, locks().await);
        let guard = holder.lock("a").unwrap().acquire().await.unwrap();
        let token = guard.fencing_token();
        let waiting = tokio::spawn(async move { waiter.lock("a").unwrap().acquire().await });
        servers[leader].pause();
        tokio::time::sleep(ttl + ttl / 5).await;
        assert!(guard.is_held(), "lost: {}", guard.lost().await);
        assert!(!waiting.is_finished(), "two hold");
        guard.release().await.unwrap();
        let next = soon("the next in line", waiting).await.unwrap().unwrap();
        assert!(next.fencing_token() > token);
        servers[leader].resume();
        next.release().await.unwrap();
    }
}

/// Tokens grow from leader to leader, and a claim outlives them all.
#[tokio::test(flavor = "multi_thread")]
async fn tokens_grow_from_leader_to_leader() {
    for program in programs() {
        let mut servers = Server::cluster::<3>(&program);
        let backend = backend_of(&servers).await;
        let kept = claim_for("kept", Duration::from_secs(60));
        let first = held_at_last(&backend, &kept).await.token;
        let mut last = first;
        for _ in 0..2 {
            let leader = leader(&servers).await;
            servers[leader].kill();
            let claim = claim_for("a", Duration::from_secs(10));
            let token = held_at_last(&backend, &claim).await.token;
            assert!(token > last, "{token} after {last}");
            last = token;
            until_answered(|| backend.release(&claim)).await;
            servers[leader].restart();
        }
        assert!(matches!(until_answered(|| backend.renew(&kept)).await, Renewal::Kept(_)));
        assert_eq!(held_at_last(&backend, &kept).await.token, first);
    }
}
