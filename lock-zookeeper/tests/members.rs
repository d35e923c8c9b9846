//! Three members: what is held outlives the death of any one, and a frozen leader.
// Helpers are part of the tests, but the lint does not know that.
#![allow(clippy::unwrap_used)]

mod support;

use std::time::Duration;

use lock_core::{Attempt, Backend, Claim, Guard, Locks, Options, Owner, Release, Renewal};
use lock_zookeeper::ZookeeperBackend;
use support::{Ensemble, PATIENCE, busy, claim, held, held_at_last, name};
use tokio::time::timeout;
use zookeeper_client::Client;

/// Longer than an election and a reconnection on a loaded machine take.
fn options() -> Options {
    Options::default().with_ttl(Duration::from_secs(10))
}

async fn locks(ensemble: &Ensemble) -> Locks {
    Locks::with_options(ensemble.backend().await, options()).unwrap()
}

/// Waits until the guard was renewed by whoever serves now.
async fn renewed(locks: &Locks, guard: &Guard) {
    let before = locks.statistics().renewals;
    let renewed = async {
        while locks.statistics().renewals <= before {
            assert!(guard.is_held());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, renewed).await.unwrap();
}

async fn survives(ensemble: &mut Ensemble, member: usize, freeze: bool) {
    let (holder, waiter) = (locks(ensemble).await, locks(ensemble).await);
    let guard = holder.lock("a").unwrap().acquire().await.unwrap();
    let token = guard.fencing_token();
    let waiting = tokio::spawn(async move { waiter.lock("a").unwrap().acquire().await });
    if freeze {
        ensemble.pause(member);
    } else {
        ensemble.kill(member);
    }
    renewed(&holder, &guard).await;
    assert!(!waiting.is_finished(), "two hold");
    assert_eq!(guard.release().await.unwrap(), Release::Released);
    let next = timeout(PATIENCE, waiting).await.unwrap().unwrap().unwrap();
    assert!(next.fencing_token() > token);
    if freeze {
        ensemble.resume(member);
    } else {
        ensemble.restart(member);
    }
    renewed(&holder, &holder.lock("b").unwrap().acquire().await.unwrap()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_outlives_its_leader_and_goes_to_the_next_in_line() {
    let mut ensemble = Ensemble::start(3);
    let leader = ensemble.leader();
    survives(&mut ensemble, leader, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_outlives_a_follower() {
    let mut ensemble = Ensemble::start(3);
    let follower = (ensemble.leader() + 1) % 3;
    survives(&mut ensemble, follower, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_outlives_a_frozen_follower() {
    let mut ensemble = Ensemble::start(3);
    let follower = (ensemble.leader() + 1) % 3;
    survives(&mut ensemble, follower, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_outlives_a_frozen_leader() {
    let mut ensemble = Ensemble::start(3);
    let leader = ensemble.leader();
    survives(&mut ensemble, leader, true).await;
}

/// Such a server still answers reads, and would say that the claim's node is there; but its leader may have
/// ended the session. Only a write counts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_its_leader_renews_nothing() {
    let ensemble = Ensemble::start(3);
    let leader = ensemble.leader();
    let (follower, other) = ((leader + 1) % 3, (leader + 2) % 3);
    let backend = ZookeeperBackend::connect(ensemble.options_of(follower)).await.unwrap();
    let reader = Client::connect(&ensemble.servers()[follower]).await.unwrap();
    let claim = claim("a");
    held(&backend, &claim).await;
    assert!(matches!(backend.renew(&claim).await.unwrap(), Renewal::Kept(_)));
    ensemble.pause(leader);
    ensemble.pause(other);

    // No earlier write is recent enough for it.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let renewed = timeout(Duration::from_millis(700), backend.renew(&claim)).await;
    let node = timeout(Duration::from_millis(700), reader.list_children("/locks/a")).await;
    ensemble.resume(leader);
    ensemble.resume(other);
    assert!(!matches!(renewed, Ok(Ok(_))), "{renewed:?} without the leader's word");
    assert_eq!(node.expect("an answer to a read").unwrap().len(), 1);

    let renewed = async { while backend.renew(&claim).await.is_err() {} };
    timeout(PATIENCE, renewed).await.unwrap();
}

/// Tokens grow from leader to leader; a claim that the dead leader granted is still known by its owner.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_grow_from_leader_to_leader() {
    let mut ensemble = Ensemble::start(3);
    let backend = ensemble.backend().await;
    let new = |of: &str| Claim::new(name(of), Owner::random().unwrap(), Duration::from_secs(30));
    let kept = new("kept");
    let mut last = held_at_last(&backend, &kept).await.token;
    for _ in 0..2 {
        let leader = ensemble.leader();
        ensemble.kill(leader);
        let claim = new("a");
        let token = held_at_last(&backend, &claim).await.token;
        assert!(token > last, "{token} after {last}");
        last = token;
        while backend.release(&claim).await.is_err() {}
        ensemble.restart(leader);
    }
    let again = async {
        loop {
            match backend.renew(&kept).await {
                Ok(Renewal::Kept(_)) => return,
                Ok(other) => panic!("{other:?}"),
                Err(error) => assert!(error.is_transient(), "{error}"),
            }
        }
    };
    timeout(PATIENCE, again).await.unwrap();
    let Attempt::Held(grant) = backend.acquire(&kept).await.unwrap() else { panic!("it is not held") };
    assert!(grant.token < last);
    busy(&backend, &new("kept")).await;
}
