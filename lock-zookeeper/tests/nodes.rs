//! The three verbs as the server sees them: nodes, owners, queues, rights.
// Helpers are part of the tests, but the lint does not know that.
#![allow(clippy::unwrap_used)]

mod support;

use std::time::Duration;

use lock_conformance::asking::abandon;
use lock_core::{Attempt, Backend, Claim, ErrorKind, Locks, Moment, Options, Owner, Released, Renewal};
use lock_zookeeper::{ZookeeperBackend, ZookeeperOptions};
use support::{Ensemble, Log, PATIENCE, busy, claim, held, held_at_last, name};
use tokio::time::timeout;
use zookeeper_client::{Acl, Acls, AuthId, Client, CreateMode, Error, Permission};

#[tokio::test]
async fn a_claim_is_an_ephemeral_node_under_a_container() {
    let server = Ensemble::start(1);
    let (backend, admin) = (server.backend().await, server.admin().await);
    let claim = claim("orders/42");
    let grant = held(&backend, &claim).await;
    let children = admin.list_children("/locks/orders%2F42").await.unwrap();
    assert_eq!(children, [format!("_c_{}-lock-0000000000", claim.owner.to_hex())]);
    let path = format!("/locks/orders%2F42/{}", children[0]);
    let (label, stat) = admin.get_data(&path).await.unwrap();
    assert_eq!(label, b"test");
    assert_eq!(u64::try_from(stat.czxid).unwrap(), grant.token.value());
    assert_ne!(stat.ephemeral_owner, 0);
    assert_eq!(backend.release(&claim).await.unwrap(), Released::Released);
    let gone = async {
        while admin.check_stat("/locks/orders%2F42").await.unwrap().is_some() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, gone).await.expect("the server deletes containers that are empty");
}

#[tokio::test]
async fn a_lease_is_two_thirds_of_a_session_that_asks_for_three_halves() {
    let server = Ensemble::start(1);
    let backend = server.backend().await;
    let claim = claim("a");
    assert_eq!(held(&backend, &claim).await.lease.length, claim.lease);
    assert!(server.four_letters("cons").contains("to=15000"), "no session of 15 s");
}

#[tokio::test]
async fn numbers_that_begin_again_do_not_lower_the_tokens() {
    let server = Ensemble::start(1);
    let (backend, admin) = (server.backend().await, server.admin().await);
    let first = claim("a");
    let token = held(&backend, &first).await.token;
    backend.release(&first).await.unwrap();
    // Unless the server has done it.
    let _ = admin.delete("/locks/a", None).await;
    let second = claim("a");
    assert!(held(&backend, &second).await.token > token);
    let children = admin.list_children("/locks/a").await.unwrap();
    assert!(children[0].ends_with("-lock-0000000000"), "{children:?}");
}

/// A neighbour's nodes are neither waited for nor touched.
#[tokio::test]
async fn children_that_are_no_locks_do_not_count_and_stay() {
    let server = Ensemble::start(1);
    let (backend, admin) = (server.backend().await, server.admin().await);
    let persistent = CreateMode::Persistent.with_acls(Acls::anyone_all());
    admin.mkdir("/locks/a/below", &persistent).await.unwrap();
    for node in ["0000000000", "x-0000000000", "lock-", "_c_a-lock-0000000000.bak"] {
        admin.create(&format!("/locks/a/{node}"), b"kept", &persistent).await.unwrap();
    }
    let claim = claim("a");
    held(&backend, &claim).await;
    assert_eq!(backend.release(&claim).await.unwrap(), Released::Released);
    drop(backend);
    assert_eq!(admin.list_children("/locks/a").await.unwrap().len(), 5);
}

/// The directory is deleted as fast as it can be while several claims come and go.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parent_that_vanishes_again_and_again_costs_no_error() {
    let server = Ensemble::start(1);
    let admin = server.admin().await;
    let vandal = tokio::spawn(async move {
        loop {
            let _ = admin.delete("/locks/a", None).await;
        }
    });
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let backend = server.backend().await;
        clients.spawn(async move {
            for _ in 0..50 {
                let claim = claim("a");
                if let Attempt::Held(_) = backend.acquire(&claim).await.unwrap() {
                    assert_eq!(backend.release(&claim).await.unwrap(), Released::Released);
                }
            }
        });
    }
    timeout(PATIENCE, clients.join_all()).await.unwrap();
    vandal.abort();
}

/// The client lives on and renews another claim, so its session lives on too.
#[tokio::test]
async fn a_claim_that_nobody_renews_is_deleted_by_its_own_client() {
    let server = Ensemble::start(1);
    let (backend, admin) = (server.backend().await, server.admin().await);
    let lease = Duration::from_secs(1);
    let (abandoned, kept) = (with_lease("a", lease), with_lease("b", lease));
    let end = held(&backend, &abandoned).await.lease.end();
    held(&backend, &kept).await;
    let gone = async {
        // With its last child the directory goes as well.
        while !matches!(admin.list_children("/locks/a").await.as_deref(), Ok([]) | Err(Error::NoNode)) {
            assert!(matches!(backend.renew(&kept).await.unwrap(), Renewal::Kept(_)));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, gone).await.unwrap();
    assert!(Moment::now() >= end, "deleted before the end of its lease");
    assert_eq!(backend.renew(&abandoned).await.unwrap(), Renewal::Lost);
    assert!(matches!(backend.renew(&kept).await.unwrap(), Renewal::Kept(_)));
}

/// So is one whose acquire was dropped before its answer, though nobody ever learned its node's name.
#[tokio::test]
async fn a_claim_that_was_dropped_unanswered_is_deleted_too() {
    let server = Ensemble::start(1);
    let (backend, admin) = (server.backend().await, server.admin().await);
    let lease = Duration::from_secs(1);
    // The session and the directory are there.
    let holder = with_lease("a", lease);
    held(&backend, &holder).await;
    let dropped = with_lease("a", lease).queued(true);
    abandon(backend.acquire(&dropped));
    let prefix = format!("_c_{}-", dropped.owner.to_hex());
    let is_there = async || {
        let children = admin.list_children("/locks/a").await.unwrap();
        children.iter().any(|child| child.starts_with(&prefix))
    };
    let came_and_went = async {
        while !is_there().await {}
        while is_there().await {
            assert!(matches!(backend.renew(&holder).await.unwrap(), Renewal::Kept(_)));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, came_and_went).await.unwrap();
}

/// A node that may not be deleted any more is left to its session, and keeps the reaper from no other.
#[tokio::test]
async fn a_claim_that_may_not_be_deleted_is_given_up_with_a_warning() {
    let (log, _logging) = Log::start();
    let server = Ensemble::start(1);
    let (backend, admin) = (server.backend().await, server.admin().await);
    let lease = Duration::from_secs(3);
    let (closed, open) = (with_lease("a", lease), with_lease("b", lease));
    held(&backend, &closed).await;
    let acls = [Permission::CREATE, Permission::READ, Permission::ADMIN];
    let acls = acls.map(|right| Acl::new(right, AuthId::anyone()));
    admin.set_acl("/locks/a", &acls, None).await.unwrap();
    held(&backend, &open).await;
    let warnings = || log.text().lines().filter(|line| line.contains("WARN lock_zookeeper::reaper")).count();
    let gone = async |directory: &str| {
        // With its last child the directory goes as well.
        while !matches!(admin.list_children(directory).await.as_deref(), Ok([]) | Err(Error::NoNode)) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, gone("/locks/b")).await.expect("the other claim is deleted");
    let given_up = async {
        while warnings() == 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, given_up).await.expect("a warning");
    // So is one that is made afterwards.
    held(&backend, &with_lease("c", lease)).await;
    timeout(PATIENCE, gone("/locks/c")).await.expect("a later claim is deleted");
    assert_eq!(admin.list_children("/locks/a").await.unwrap().len(), 1);
    assert_eq!(warnings(), 1, "{}", log.text());
}

fn with_lease(of: &str, lease: Duration) -> Claim {
    Claim::new(name(of), Owner::random().unwrap(), lease)
}

/// The waiter's session ends while it waits, as by an operator's hand.
#[tokio::test]
async fn a_waiter_whose_session_ended_queues_up_again() {
    let server = Ensemble::start(1);
    let (holder, waiter) = (server.backend().await, server.backend().await);
    let (claim, waiting) = (claim("a"), claim("a").queued(true));
    held(&holder, &claim).await;
    let wake = busy(&waiter, &waiting).await.wake.unwrap();
    end_session_of(&server, &waiting).await;
    assert!(timeout(PATIENCE, wake).await.unwrap().is_none(), "a grant from a session that is over");
    let again = busy(&waiter, &waiting).await;
    holder.release(&claim).await.unwrap();
    timeout(PATIENCE, again.wake.unwrap()).await.unwrap();
    held(&waiter, &waiting).await;
}

/// The one behind it is the first then.
#[tokio::test]
async fn a_waiter_whose_node_was_deleted_is_not_granted_the_lock_by_a_release() {
    let server = Ensemble::start(1);
    let (holder, waiter, admin) = (server.backend().await, server.backend().await, server.admin().await);
    let (claim, waiting) = (claim("a"), claim("a").queued(true));
    held(&holder, &claim).await;
    let wake = busy(&waiter, &waiting).await.wake.unwrap();
    let prefix = format!("_c_{}-", waiting.owner.to_hex());
    let children = admin.list_children("/locks/a").await.unwrap();
    let node = children.iter().find(|child| child.starts_with(&prefix)).unwrap();
    admin.delete(&format!("/locks/a/{node}"), None).await.unwrap();
    holder.release(&claim).await.unwrap();
    assert!(timeout(PATIENCE, wake).await.unwrap().is_none(), "a grant without a node");
    held(&waiter, &waiting).await;
}

#[tokio::test]
async fn a_holder_whose_session_ended_is_told_at_once() {
    let server = Ensemble::start(1);
    let locks = Locks::new(server.backend().await).unwrap();
    let guard = locks.lock("a").unwrap().acquire().await.unwrap();
    let first = guard.fencing_token();
    end_session_of(&server, &Claim::new(name("a"), guard.owner(), Duration::ZERO)).await;
    // Long before a renewal would be due.
    let loss = timeout(Duration::from_secs(3), guard.lost()).await.unwrap();
    assert_eq!(loss, lock_core::Loss::Revoked);
    let again = locks.lock("a").unwrap().acquire().await.unwrap();
    assert!(again.fencing_token() > first);
}

/// Closes the session that owns the claim's node, past its client: the server forgets it as if it had run out.
async fn end_session_of(server: &Ensemble, claim: &Claim) {
    server.close_session(session_of(&server.admin().await, claim).await);
}

/// The session that owns the claim's node.
async fn session_of(admin: &Client, claim: &Claim) -> i64 {
    let directory = format!("/locks/{}", claim.name);
    let prefix = format!("_c_{}-", claim.owner.to_hex());
    let children = admin.list_children(&directory).await.unwrap();
    let node = children.iter().find(|child| child.starts_with(&prefix)).unwrap();
    let stat = admin.check_stat(&format!("{directory}/{node}")).await.unwrap().unwrap();
    stat.ephemeral_owner
}

/// As after a session that is dying while its last request, to make the node, is done. However the node is met,
/// it is no claim that can be kept, so it goes, and another is made.
#[tokio::test]
async fn a_claims_node_from_another_session_of_its_client_is_made_anew() {
    let server = Ensemble::start(1);
    let (backend, admin) = (server.backend().await, server.admin().await);
    admin.create("/locks/a", b"", &CreateMode::Persistent.with_acls(Acls::anyone_all())).await.unwrap();
    // Leases of two lengths make two sessions.
    let elder = claim("b");
    held(&backend, &elder).await;
    let session = session_of(&admin, &elder).await;
    let new_claim = || with_lease("a", Duration::from_secs(60));
    let make_twin = |claim: &Claim| {
        server.create_in_session(session, &format!("/locks/a/_c_{}-lock-", claim.owner.to_hex()));
    };

    let searched = new_claim();
    make_twin(&searched);
    assert_eq!(session_of(&admin, &searched).await, session);
    assert_eq!(backend.renew(&searched).await.unwrap(), Renewal::Lost);
    assert_eq!(admin.list_children("/locks/a").await.unwrap(), [""; 0]);

    let (fresh, cut_off) = (new_claim(), new_claim());
    make_twin(&fresh);
    held(&backend, &fresh).await;
    assert_eq!(admin.list_children("/locks/a").await.unwrap().len(), 1);
    assert_ne!(session_of(&admin, &fresh).await, session);
    backend.release(&fresh).await.unwrap();

    make_twin(&cut_off);
    abandon(backend.acquire(&cut_off));
    held(&backend, &cut_off).await;
    assert_eq!(admin.list_children("/locks/a").await.unwrap().len(), 1);
    assert_ne!(session_of(&admin, &cut_off).await, session);
    // All the while the other session was alive.
    assert_eq!(session_of(&admin, &elder).await, session);
}

#[tokio::test]
async fn waiters_that_gave_up_leave_no_watches() {
    let server = Ensemble::start(1);
    let (holder, client) = (server.backend().await, server.backend().await);
    held(&holder, &claim("a")).await;
    let options = Options::default().with_ttl(Duration::from_secs(30));
    let locks = Locks::with_options(client, options).unwrap();
    let lock = locks.lock("a").unwrap();
    for _ in 0..100 {
        assert!(lock.acquire_within(Duration::from_millis(2)).await.unwrap().is_none());
    }
    let few = async {
        while server.watches() > 2 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, few).await.unwrap_or_else(|_| panic!("{} watches", server.watches()));
}

#[tokio::test]
async fn a_password_keeps_others_out_and_is_needed_by_all() {
    let server = Ensemble::start(1);
    let options = server.options().user("me").password("s3cr3t:");
    let backend = ZookeeperBackend::connect(options.clone()).await.unwrap();
    let first = claim("a");
    held(&backend, &first).await;
    let friend = ZookeeperBackend::connect(options).await.unwrap();
    busy(&friend, &claim("a")).await;

    let began = Moment::now();
    let wrong = server.options().user("me").password("wrong-s3cr3t");
    for stranger in [server.options(), wrong] {
        let error = ZookeeperBackend::connect(stranger).await.unwrap_err();
        assert_eq!((error.kind(), error.is_transient()), (ErrorKind::Denied, false), "{error}");
        assert!(!format!("{error} {error:?}").contains("s3cr3t"), "{error:?}");
    }
    assert!(Moment::now().saturating_since(began) < Duration::from_secs(5));
    assert_eq!(backend.release(&first).await.unwrap(), Released::Released);
    held_at_last(&friend, &claim("a")).await;
}

/// The directory of one name is another user's: that lock is denied, the others are not.
#[tokio::test]
async fn a_lock_of_another_user_is_denied_and_not_retried() {
    let server = Ensemble::start(1);
    let (backend, admin) = (server.backend().await, server.admin().await);
    admin.auth("digest", b"other:pass").await.unwrap();
    admin.create("/locks/a", b"", &CreateMode::Persistent.with_acls(Acls::creator_all())).await.unwrap();
    let locks = Locks::new(backend).unwrap();
    let error =
        timeout(Duration::from_secs(2), locks.lock("a").unwrap().acquire()).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    drop(locks.lock("b").unwrap().acquire().await.unwrap());
}

/// As while a password is introduced: the one ahead has it, and lets nobody without it look at its node.
#[tokio::test]
async fn a_claim_that_may_not_look_at_the_one_ahead_is_denied_and_leaves_nothing() {
    let server = Ensemble::start(1);
    let (backend, admin) = (server.backend().await, server.admin().await);
    let ahead = ahead_of_all(&admin, Acls::anyone_all()).await;
    for _ in 0..2 {
        let error = backend.acquire(&claim("a").queued(true).fresh(true)).await.unwrap_err();
        assert_eq!((error.kind(), error.is_transient()), (ErrorKind::Denied, false), "{error}");
        assert_eq!(admin.list_children("/locks/a").await.unwrap(), [ahead.as_str()]);
    }
}

/// Core releases that. A refusal would be the word that there is nothing to release, but for a claim that was
/// asked for before.
#[tokio::test]
async fn a_denied_claim_that_cannot_be_taken_back_is_an_unknown_outcome() {
    let server = Ensemble::start(1);
    let (backend, admin) = (server.backend().await, server.admin().await);
    // No node of the directory may be deleted.
    let acls =
        [Permission::CREATE | Permission::READ, Permission::ADMIN].map(|p| Acl::new(p, AuthId::anyone()));
    ahead_of_all(&admin, Acls::new(&acls)).await;
    let ours = claim("a").queued(true).fresh(true);
    let error = backend.acquire(&ours).await.unwrap_err();
    assert_eq!((error.kind(), error.is_transient()), (ErrorKind::Unavailable, true), "{error}");
    assert_eq!(admin.list_children("/locks/a").await.unwrap().len(), 2);
    let error = backend.acquire(&ours.clone().fresh(false)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    admin.set_acl("/locks/a", &[Acl::new(Permission::ALL, AuthId::anyone())], None).await.unwrap();
    assert_eq!(backend.release(&ours).await.unwrap(), Released::Released);
    assert_eq!(admin.list_children("/locks/a").await.unwrap().len(), 1);
}

/// Makes the first claim of a directory with these rights, as a user who keeps the node to itself; its name.
async fn ahead_of_all(admin: &Client, acls: Acls<'_>) -> String {
    admin.create("/locks/a", b"", &CreateMode::Persistent.with_acls(acls)).await.unwrap();
    admin.auth("digest", b"other:pass").await.unwrap();
    let closed = CreateMode::EphemeralSequential.with_acls(Acls::creator_all());
    let (_, number) = admin.create("/locks/a/_c_a-lock-", b"", &closed).await.unwrap();
    format!("_c_a-lock-{number}")
}

#[tokio::test]
async fn the_servers_own_root_is_a_root_too() {
    let server = Ensemble::start(1);
    let options = ZookeeperOptions::new(server.servers()).connect_timeout(PATIENCE);
    let backend = ZookeeperBackend::connect(options).await.unwrap();
    for name in ["a", "zookeeper", ".", "..", "/"] {
        held(&backend, &claim(name)).await;
    }
    let nodes = server.admin().await.list_children("/").await.unwrap();
    for node in ["a", "%7Aookeeper", "%2E", "%2E%2E", "%2F", "zookeeper"] {
        assert!(nodes.iter().any(|there| there == node), "{node} in {nodes:?}");
    }
}
