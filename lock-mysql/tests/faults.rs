//! Servers in odd states, and what is left of connections and transactions.
// Helpers are part of the tests, but the lint does not know that.
#![allow(clippy::unwrap_used)]

mod support;

use std::{
    future::pending,
    time::{Duration, Instant},
};

use lock_core::{Attempt, Backend, ErrorKind, Released, Renewal};
use lock_mysql::MysqlBackend;
use support::{Kind, PATIENCE, Server, armed, busy, claim, held, until, until_answered};
use tokio::time::timeout;

/// Holds, waits, hands over and releases, with two clients.
async fn works(holder: &impl Backend, waiter: &impl Backend, name: &str) {
    let (ours, theirs) = (claim(name), claim(name));
    let token = held(holder, &ours).await.token;
    assert!(matches!(holder.renew(&ours).await.unwrap(), Renewal::Kept(_)));
    let wake = armed(waiter, &theirs).await;
    assert_eq!(holder.release(&ours).await.unwrap(), Released::Released);
    timeout(PATIENCE, wake).await.expect("the wake");
    assert!(held(waiter, &theirs).await.token > token);
    assert_eq!(waiter.release(&theirs).await.unwrap(), Released::Released);
}

on_both!(the_defaults_of_the_server_do_not_matter);
async fn the_defaults_of_the_server_do_not_matter(kind: Kind) {
    let server = Server::start(
        kind,
        &[
            "--transaction-isolation=SERIALIZABLE",
            "--init-connect=SET autocommit = 0, time_zone = '-08:00'",
            "--default-time-zone=+05:00",
            "--character-set-server=latin1",
            "--sql-mode=ANSI,NO_BACKSLASH_ESCAPES,PAD_CHAR_TO_FULL_LENGTH",
            "--innodb-rollback-on-timeout=ON",
            "--log-bin",
            "--binlog-format=MIXED",
        ],
    );
    let (first, second) = (server.backend().await, server.backend().await);
    works(&first, &second, "a").await;
    let short = claim("b");
    let mut short = short.clone();
    short.lease = Duration::from_millis(300);
    let end = held(&first, &short).await.lease.end();
    let next = claim("b").queued(false);
    while let Attempt::Busy(_) = second.acquire(&next).await.unwrap() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(lock_core::Moment::now() >= end);
}

on_both!(a_statement_limit_of_the_server_does_not_end_a_wait);
async fn a_statement_limit_of_the_server_does_not_end_a_wait(kind: Kind) {
    let limit = match kind {
        Kind::MariaDb => "--max-statement-time=1",
        Kind::Oracle => "--max-execution-time=1000",
    };
    let server = Server::start(kind, &[limit]);
    let (holder, waiter) = (server.backend().await, server.backend().await);
    let (ours, theirs) = (claim("a"), claim("a"));
    held(&holder, &ours).await;
    let mut told = armed(&waiter, &theirs).await;
    // It may ring in vain, as often as the server ends its sleep.
    let since = Instant::now();
    while since.elapsed() < Duration::from_millis(2500) {
        if timeout(Duration::from_millis(100), &mut told).await.is_ok() {
            told = busy(&waiter, &theirs).await.wake.expect("a wake");
        }
    }
    holder.release(&ours).await.unwrap();
    timeout(PATIENCE, told).await.expect("the wake");
    held(&waiter, &theirs).await;
}

on_both!(a_row_that_a_stranger_has_locked_is_an_error_in_time);
async fn a_row_that_a_stranger_has_locked_is_an_error_in_time(kind: Kind) {
    let server = Server::start(kind, &[]);
    let backend = server.backend().await;
    let ours = claim("a");
    held(&backend, &ours).await;
    let stranger = server.stranger("a").await;
    let since = Instant::now();
    let error = backend.renew(&ours).await.unwrap_err();
    assert_eq!((error.kind(), error.is_transient()), (ErrorKind::Unavailable, true), "{error}");
    // MySQL looks once a second for waits of a second.
    assert!(since.elapsed() < Duration::from_secs(6), "{:?}", since.elapsed());
    assert!(error.to_string().contains("another transaction"), "{error}");
    held(&backend, &claim("b")).await;
    stranger.leave();
    assert!(matches!(backend.renew(&ours).await.unwrap(), Renewal::Kept(_)));
}

on_both!(a_server_that_is_read_only_for_a_while_is_an_error_for_so_long);
async fn a_server_that_is_read_only_for_a_while_is_an_error_for_so_long(kind: Kind) {
    let server = Server::start(kind, &[]);
    let backend = server.backend().await;
    let ours = claim("a");
    held(&backend, &ours).await;
    server.sql("SET GLOBAL read_only = 1");
    for _ in 0..3 {
        let error = backend.renew(&ours).await.unwrap_err();
        assert_eq!((error.kind(), error.is_transient()), (ErrorKind::Unavailable, true), "{error}");
        assert!(backend.acquire(&claim("b")).await.unwrap_err().is_transient());
        assert!(backend.release(&ours).await.unwrap_err().is_transient());
    }
    server.sql("SET GLOBAL read_only = 0");
    assert!(matches!(backend.renew(&ours).await.unwrap(), Renewal::Kept(_)));
    assert_eq!(backend.release(&ours).await.unwrap(), Released::Released);
    held(&backend, &claim("b")).await;
}

on_both!(connections_that_the_server_closed_for_idleness_are_replaced);
async fn connections_that_the_server_closed_for_idleness_are_replaced(kind: Kind) {
    let server = Server::start(kind, &["--wait-timeout=1"]);
    let (holder, waiter) = (server.backend().await, server.backend().await);
    let (ours, theirs) = (claim("a"), claim("a"));
    held(&holder, &ours).await;
    let wake = armed(&waiter, &theirs).await;
    until("the idle connections' end", || server.connections() == 1).await;
    assert!(matches!(until_answered(|| holder.renew(&ours)).await, Renewal::Kept(_)));
    holder.release(&ours).await.unwrap();
    // The one that sleeps is not idle.
    timeout(PATIENCE, wake).await.expect("the wake");
    assert!(matches!(until_answered(|| waiter.acquire(&theirs)).await, Attempt::Held(_)));
}

on_both!(waiters_look_again_when_their_connection_is_killed_or_the_server_restarts);
async fn waiters_look_again_when_their_connection_is_killed_or_the_server_restarts(kind: Kind) {
    let mut server = Server::start(kind, &[]);
    let (holder, waiter) = (server.backend().await, server.backend().await);
    let (ours, theirs) = (claim("a"), claim("a"));
    held(&holder, &ours).await;
    let wake = armed(&waiter, &theirs).await;
    let sleeping = "SELECT id FROM information_schema.processlist WHERE info LIKE 'SELECT GET_LOCK%'";
    server.sql(&format!("KILL {}", server.sql(sleeping)));
    timeout(PATIENCE, wake).await.expect("the wake");
    let wake = armed(&waiter, &theirs).await;
    server.kill();
    timeout(PATIENCE, wake).await.expect("the wake");
    server.restart();
    assert!(matches!(until_answered(|| holder.renew(&ours)).await, Renewal::Kept(_)));
    assert!(matches!(until_answered(|| waiter.acquire(&theirs)).await, Attempt::Busy(_)), "two hold");
    let wake = armed(&waiter, &theirs).await;
    assert_eq!(until_answered(|| holder.release(&ours)).await, Released::Released);
    timeout(PATIENCE, wake).await.expect("the wake");
    held(&waiter, &theirs).await;
}

on_both!(a_frozen_server_does_not_empty_the_pool);
async fn a_frozen_server_does_not_empty_the_pool(kind: Kind) {
    let server = Server::start(kind, &[]);
    let backend = MysqlBackend::connect(server.options().connections(2).unwrap()).await.unwrap();
    let ours = claim("a");
    held(&backend, &ours).await;
    server.pause();
    for _ in 0..6 {
        let renewal = timeout(Duration::from_millis(50), backend.renew(&ours)).await;
        assert!(renewal.is_err(), "{renewal:?}");
        let attempt = timeout(Duration::from_millis(50), backend.acquire(&claim("b"))).await;
        assert!(attempt.is_err(), "{attempt:?}");
    }
    server.resume();
    assert!(matches!(until_answered(|| backend.renew(&ours)).await, Renewal::Kept(_)));
    held(&backend, &claim("c")).await;
    until("the end of the connections that were given up", || server.connections() <= 2).await;
}

on_both!(dropped_verbs_leave_no_transaction_and_no_lock, flavor = "multi_thread", worker_threads = 2);
async fn dropped_verbs_leave_no_transaction_and_no_lock(kind: Kind) {
    let server = Server::start(kind, &[]);
    let backend = MysqlBackend::connect(server.options().connections(2).unwrap()).await.unwrap();
    let other = server.backend().await;
    let holder = claim("held");
    held(&other, &holder).await;
    for round in 0..100_u64 {
        let (free, waiting) = (claim("free"), claim("held"));
        let limit = Duration::from_micros(round * 37 % 3000);
        let _ = timeout(limit, backend.acquire(&free)).await;
        backend.release(&free).await.unwrap();
        let _ = timeout(limit, backend.acquire(&waiting)).await;
        let _ = timeout(limit, backend.release(&waiting)).await;
        backend.release(&waiting).await.unwrap();
        // A release that came after a dropped acquire has the last word.
        let next = claim("free").queued(false);
        held(&other, &next).await;
        other.release(&next).await.unwrap();
    }
    assert_eq!(server.sql("SELECT COUNT(*) FROM information_schema.innodb_trx").trim(), "0");
    assert_eq!(server.sql("SELECT COUNT(*) FROM polylock_queue").trim(), "0");
    assert_eq!(server.sql("SELECT waiting FROM polylock WHERE name = 'held'").trim(), "0");
}

on_both!(many_at_once_on_new_names_never_see_a_deadlock, flavor = "multi_thread", worker_threads = 2);
async fn many_at_once_on_new_names_never_see_a_deadlock(kind: Kind) {
    let server = Server::start(kind, &[]);
    let backend =
        std::sync::Arc::new(MysqlBackend::connect(server.options().connections(20).unwrap()).await.unwrap());
    for round in 0..5 {
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..40 {
            let (backend, name) = (backend.clone(), format!("{round}/{}", number % 8));
            tasks.spawn(async move {
                matches!(
                    backend.acquire(&claim(&name).queued(number % 2 == 0)).await.unwrap(),
                    Attempt::Held(_)
                )
            });
        }
        let holders = tasks.join_all().await.into_iter().filter(|held| *held).count();
        assert_eq!(holders, 8, "one for each name");
    }
}

on_both!(a_waiter_that_is_another_user_finds_the_lock_by_itself);
async fn a_waiter_that_is_another_user_finds_the_lock_by_itself(kind: Kind) {
    let server = Server::start(kind, &[]);
    let holder = server.backend().await;
    let others = server.url().replace("locks", "others");
    let waiter = support::connect(&others).await.unwrap();
    let (ours, theirs) = (claim("a"), claim("a"));
    held(&holder, &ours).await;
    let wake = armed(&waiter, &theirs).await;
    holder.release(&ours).await.unwrap();
    assert!(timeout(Duration::from_millis(300), wake).await.is_err(), "who has woken it?");
    held(&waiter, &theirs).await;
}

on_both!(waiting_costs_one_connection_and_only_while_it_lasts);
async fn waiting_costs_one_connection_and_only_while_it_lasts(kind: Kind) {
    let server = Server::start(kind, &[]);
    let (holder, waiter) = (server.backend().await, server.backend().await);
    let mut waits = Vec::new();
    for number in 0..20 {
        held(&holder, &claim(&number.to_string())).await;
    }
    let before = server.connections();
    assert_eq!(before, 2, "one for each client");
    for number in 0..20 {
        let name = number.to_string();
        waits.push(armed(&waiter, &claim(&name)).await);
    }
    until("the bell", || server.sleepers() == 1).await;
    drop(waits);
    until("its end", || server.connections() <= before + 1 && server.sleepers() == 0).await;
}

on_both!(a_table_that_was_dropped_is_made_again);
async fn a_table_that_was_dropped_is_made_again(kind: Kind) {
    let server = Server::start(kind, &[]);
    let backend = server.backend().await;
    let ours = claim("a");
    let token = held(&backend, &ours).await.token;
    server.sql("DROP TABLE polylock, polylock_queue");
    assert_eq!(backend.renew(&ours).await.unwrap(), Renewal::Lost);
    assert!(held(&backend, &claim("a")).await.token > token);
}

on_both!(the_next_in_line_looks_when_the_holders_lease_ends_though_another_stands_in_front);
async fn the_next_in_line_looks_when_the_holders_lease_ends_though_another_stands_in_front(kind: Kind) {
    let server = Server::start(kind, &[]);
    let leased = |seconds| {
        let mut claim = claim("a");
        claim.lease = Duration::from_secs(seconds);
        claim
    };
    // A third of the last one's lease is longer than all of this takes.
    let (ours, first, second) = (leased(5), leased(6), leased(90));
    let waiter = server.backend().await;
    let since = Instant::now();
    // These two are never heard of again.
    let token = held(&server.backend().await, &ours).await.token;
    busy(&server.backend().await, &first).await;
    let mut told = busy(&waiter, &second).await;
    assert!(told.recheck_within <= ours.lease, "{told:?}");
    let grant = loop {
        let wake = told.wake.unwrap_or_else(|| Box::pin(pending()));
        let _ = timeout(told.recheck_within, wake).await;
        match waiter.acquire(&second).await.unwrap() {
            Attempt::Held(grant) => break grant,
            Attempt::Busy(busy) => told = busy,
            other => panic!("{other:?}"),
        }
    };
    assert!(grant.token > token);
    let took = since.elapsed();
    assert!(took >= first.lease && took < second.lease / 6, "{took:?}");
}
