//! Transactions that the server undoes because of others, and rows that others keep locked.
// Helpers are part of the tests, but the lint does not know that.
#![allow(clippy::unwrap_used)]

mod support;

use std::time::Duration;

use futures_util::future::join_all;
use lock_core::{Backend, Locks, Options, Release, Released, Renewal};
use support::{Kind, PATIENCE, Server, armed, busy, claim, held, held_at_last, until, until_answered};
use tokio::time::timeout;

/// What failures there are still to be, counted where a transaction that is undone leaves its traces.
const FAILURES: &str = "\
    CREATE TABLE failures (remaining INT, error INT) ENGINE=MyISAM;
    INSERT INTO failures VALUES (0, 0)";

/// Deadlock (on Galera, also a failed certification).
const DEADLOCK: u32 = 1213;

/// The row has changed since it was read.
const CHANGED: u32 = 1020;

/// A server on which statements can be made to fail.
struct Failing(Server);

impl Failing {
    /// How often a step is begun anew.
    const MOST: u32 = 5;

    fn start(kind: Kind) -> Self {
        let server = Server::start(kind, &[]);
        server.sql(&server.options().migration());
        server.sql(FAILURES);
        Self(server)
    }

    /// What the work gives though statements like `BEFORE UPDATE ON polylock` fail so often in it.
    async fn through<T>(&self, statement: &str, error: u32, times: u32, work: impl Future<Output = T>) -> T {
        self.0.sql(&format!("UPDATE failures SET remaining = {times}, error = {error}"));
        self.0.sql(&format!(
            "DELIMITER //
             CREATE TRIGGER fail {statement} FOR EACH ROW
             BEGIN
               DECLARE code INT DEFAULT (SELECT error FROM failures WHERE remaining > 0);
               IF code IS NOT NULL THEN
                 UPDATE failures SET remaining = remaining - 1;
                 SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = code, MESSAGE_TEXT = 'undone';
               END IF;
             END//"
        ));
        let result = work.await;
        self.0.sql("DROP TRIGGER fail");
        let remaining = self.0.sql("SELECT remaining FROM failures");
        assert_eq!(remaining.trim(), "0", "it was not tried so often");
        result
    }
}

on_both!(a_transaction_that_lost_against_another_is_begun_anew);
async fn a_transaction_that_lost_against_another_is_begun_anew(kind: Kind) {
    let server = Failing::start(kind);
    let (first, second) = (server.0.backend().await, server.0.backend().await);
    let most = Failing::MOST;
    for (name, error) in [("a", DEADLOCK), ("b", CHANGED)] {
        let (ours, theirs) = (claim(name), claim(name));
        let taking = held(&first, &ours);
        let token = server.through("BEFORE INSERT ON polylock", error, most, taking).await.token;
        let renewing = first.renew(&ours);
        let renewal = server.through("BEFORE UPDATE ON polylock", error, most, renewing).await;
        assert!(matches!(renewal, Ok(Renewal::Kept(_))), "{renewal:?}");
        let queueing = busy(&second, &theirs);
        server.through("BEFORE INSERT ON polylock_queue", error, most, queueing).await;
        let wake = armed(&second, &theirs).await;
        let handing_over = first.release(&ours);
        let released = server.through("BEFORE DELETE ON polylock_queue", error, most, handing_over).await;
        assert_eq!(released.unwrap(), Released::Released);
        timeout(PATIENCE, wake).await.expect("the wake");
        assert!(held(&second, &theirs).await.token > token);
        let releasing = second.release(&theirs);
        let released = server.through("BEFORE UPDATE ON polylock", error, most, releasing).await;
        assert_eq!(released.unwrap(), Released::Released);
        assert_eq!(second.release(&theirs).await.unwrap(), Released::Absent);
        held(&second, &claim(name).queued(false)).await;
    }
    assert_eq!(server.0.sql("SELECT COUNT(*) FROM polylock_queue").trim(), "0");
}

on_both!(renewals_that_lost_together_are_kept);
async fn renewals_that_lost_together_are_kept(kind: Kind) {
    let server = Failing::start(kind);
    let backend = server.0.backend().await;
    let claims: Vec<_> = (0..10).map(|number| claim(&number.to_string())).collect();
    for claim in &claims {
        held(&backend, claim).await;
    }
    let all = join_all(claims.iter().map(|claim| backend.renew(claim)));
    for renewal in server.through("BEFORE UPDATE ON polylock", DEADLOCK, Failing::MOST, all).await {
        assert!(matches!(renewal, Ok(Renewal::Kept(_))), "{renewal:?}");
    }
}

on_both!(a_conflict_that_does_not_end_is_an_error_that_may_pass);
async fn a_conflict_that_does_not_end_is_an_error_that_may_pass(kind: Kind) {
    let server = Failing::start(kind);
    let backend = server.0.backend().await;
    let ours = claim("a");
    held(&backend, &ours).await;
    let releasing = backend.release(&ours);
    let times = Failing::MOST + 1;
    let released = server.through("BEFORE UPDATE ON polylock", DEADLOCK, times, releasing).await;
    let error = released.unwrap_err();
    assert!(error.is_transient() && error.to_string().contains("1213"), "{error}");
    assert!(matches!(backend.renew(&ours).await.unwrap(), Renewal::Kept(_)), "nothing was released");
    assert_eq!(backend.release(&ours).await.unwrap(), Released::Released);
}

on_both!(a_release_of_a_locked_row_ends_as_soon_as_it_can);
async fn a_release_of_a_locked_row_ends_as_soon_as_it_can(kind: Kind) {
    let server = Server::start(kind, &[]);
    let (holder, other) = (server.backend().await, server.backend().await);
    for waits in [false, true] {
        let (ours, theirs) = (claim("a"), claim("a"));
        held(&holder, &ours).await;
        let wake = if waits { Some(armed(&other, &theirs).await) } else { None };
        let stranger = server.stranger("a").await;
        let error = holder.release(&ours).await.unwrap_err();
        assert!(error.is_transient() && error.to_string().contains("another transaction"), "{error}");
        stranger.leave();
        assert_eq!(until_answered(|| holder.release(&ours)).await, Released::Released);
        if let Some(wake) = wake {
            timeout(PATIENCE, wake).await.expect("the wake");
        }
        held(&other, &theirs).await;
        assert_eq!(other.release(&theirs).await.unwrap(), Released::Released);
    }
}

on_both!(a_guard_whose_row_is_locked_for_a_while_is_released);
async fn a_guard_whose_row_is_locked_for_a_while_is_released(kind: Kind) {
    let server = Server::start(kind, &[]);
    let options = Options::default().with_ttl(Duration::from_secs(300)).with_verb_limit(PATIENCE);
    let locks = Locks::with_options(server.backend().await, options).unwrap();
    let guard = locks.lock("a").unwrap().acquire().await.unwrap();
    let stranger = server.stranger("a").await;
    let releasing = tokio::spawn(guard.release());
    until("a release in vain", || locks.statistics().release.errors > 0).await;
    assert!(!releasing.is_finished());
    stranger.leave();
    assert_eq!(timeout(PATIENCE, releasing).await.unwrap().unwrap().unwrap(), Release::Released);
    held_at_last(&server.backend().await, &claim("a")).await;
}
