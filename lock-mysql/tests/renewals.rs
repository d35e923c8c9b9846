//! Renewals of many locks: one statement for as many as come together, and none suffers from another.
// Helpers are part of the tests, but the lint does not know that.
#![allow(clippy::unwrap_used)]

mod support;

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use lock_core::{Backend, Claim, ErrorKind, Renewal, Result};
use lock_mysql::MysqlBackend;
use support::{Kind, Server, claim, held};

const LOCKS: usize = 150;

async fn all_held(backend: &MysqlBackend) -> Vec<Claim> {
    let claims: Vec<_> = (0..LOCKS).map(|i| claim(&format!("n{i}"))).collect();
    for claim in &claims {
        held(backend, claim).await;
    }
    claims
}

async fn renewed(backend: &MysqlBackend, claims: &[Claim]) -> Vec<Result<Renewal>> {
    timed(backend, claims).await.into_iter().map(|(renewal, _)| renewal).collect()
}

/// All at once, and how long each took.
async fn timed(backend: &MysqlBackend, claims: &[Claim]) -> Vec<(Result<Renewal>, Duration)> {
    let since = Instant::now();
    join_all(claims.iter().map(|claim| async move { (backend.renew(claim).await, since.elapsed()) })).await
}

on_both!(many_are_renewed_by_few_statements);
async fn many_are_renewed_by_few_statements(kind: Kind) {
    let server = Server::start(kind, &[]);
    let backend = server.backend().await;
    let claims = all_held(&backend).await;
    let deadline = "SELECT MIN(deadline) FROM polylock";
    let (before, first) = (server.status("Com_update"), server.sql(deadline));
    for renewal in renewed(&backend, &claims).await {
        assert!(matches!(renewal, Ok(Renewal::Kept(lease)) if lease.length == claims[0].lease));
    }
    let used = server.status("Com_update") - before;
    assert!(used <= 4, "{used} statements for {LOCKS} renewals");
    assert!(server.sql(deadline) > first, "all deadlines have moved");
}

on_both!(the_lost_among_many_are_told_and_the_others_kept);
async fn the_lost_among_many_are_told_and_the_others_kept(kind: Kind) {
    let server = Server::start(kind, &[]);
    let backend = server.backend().await;
    let claims = all_held(&backend).await;
    server.sql("UPDATE polylock SET owner = NULL, deadline = '1970-01-01' WHERE name = 'n7'");
    let other = claim("n7");
    held(&backend, &other).await;
    for (renewal, claim) in renewed(&backend, &claims).await.into_iter().zip(&claims) {
        let lost = claim.name.as_str() == "n7";
        assert_eq!(matches!(renewal.unwrap(), Renewal::Lost), lost, "{}", claim.name);
    }
    assert!(matches!(backend.renew(&other).await.unwrap(), Renewal::Kept(_)), "it is the other's");
}

on_both!(a_row_that_a_stranger_has_locked_delays_no_other_renewal);
async fn a_row_that_a_stranger_has_locked_delays_no_other_renewal(kind: Kind) {
    let server = Server::start(kind, &[]);
    let backend = server.backend().await;
    let claims = all_held(&backend).await;
    let stranger = server.stranger("n7").await;
    // Core gives a renewal a sixth of the lease.
    let limit = claims[0].lease / 6;
    for _ in 0..2 {
        for ((renewal, took), claim) in timed(&backend, &claims).await.into_iter().zip(&claims) {
            match renewal {
                Ok(Renewal::Kept(_)) => {
                    assert!(claim.name.as_str() != "n7" && took < limit, "{} after {took:?}", claim.name);
                }
                Err(error) => {
                    assert_eq!(
                        (claim.name.as_str(), error.kind()),
                        ("n7", ErrorKind::Unavailable),
                        "{error}"
                    );
                }
                Ok(other) => panic!("{}: {other:?}", claim.name),
            }
        }
    }
    stranger.leave();
    for renewal in renewed(&backend, &claims).await {
        assert!(matches!(renewal.unwrap(), Renewal::Kept(_)));
    }
}

on_both!(leases_of_other_lengths_keep_their_lengths);
async fn leases_of_other_lengths_keep_their_lengths(kind: Kind) {
    let server = Server::start(kind, &[]);
    let backend = server.backend().await;
    let mut claims = all_held(&backend).await;
    for (i, claim) in claims.iter_mut().enumerate() {
        claim.lease = Duration::from_secs(10 + i as u64 % 3);
    }
    for (renewal, claim) in renewed(&backend, &claims).await.into_iter().zip(&claims) {
        assert!(matches!(renewal, Ok(Renewal::Kept(lease)) if lease.length == claim.lease));
    }
    let lengths = "SELECT COUNT(DISTINCT ROUND(TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), deadline) / 1e6)) \
                   FROM polylock";
    assert_eq!(server.sql(lengths).trim(), "3");
}
