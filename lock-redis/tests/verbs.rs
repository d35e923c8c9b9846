//! The three verbs as the server sees them: keys, values, expiry, tokens.
// Helpers are part of the tests, but the lint does not know that.
#![allow(clippy::unwrap_used)]

mod support;

use std::time::Duration;

use lock_core::{Attempt, Backend, Claim, ErrorKind, Owner, Released, Renewal};
use support::{Server, ask, busy, claim, ends, held, name};

#[tokio::test]
async fn the_value_names_owner_token_and_label_and_expires_with_the_lease() {
    let server = Server::start(&[]);
    let (backend, mut admin) = (server.backend().await, server.admin());
    let claim = claim("orders/42");
    let grant = held(&backend, &claim).await;
    let value: String = ask(&mut admin, "GET polylock:{orders/42}");
    assert_eq!(value, format!("{}:{}:test", claim.owner.to_hex(), grant.token));
    let left = Duration::from_millis(ask(&mut admin, "PTTL polylock:{orders/42}"));
    assert!(left <= claim.lease && ends(left) >= grant.lease.end(), "{left:?}");
    assert_eq!(grant.lease.length, claim.lease);
}

#[tokio::test]
async fn the_counter_is_written_in_full_and_never_expires() {
    let server = Server::start(&[]);
    let (backend, mut admin) = (server.backend().await, server.admin());
    let claim = claim("a");
    let grant = held(&backend, &claim).await;
    let counter: String = ask(&mut admin, "GET polylock:{a}:fence");
    assert_eq!(counter, grant.token.to_string());
    assert!(counter.bytes().all(|b| b.is_ascii_digit()) && counter.len() == 16, "{counter}");
    backend.renew(&claim).await.unwrap();
    backend.release(&claim).await.unwrap();
    assert_eq!(ask::<i64>(&mut admin, "TTL polylock:{a}:fence"), -1);
    assert_eq!(ask::<Vec<String>>(&mut admin, "KEYS *"), ["polylock:{a}:fence"]);
}

#[tokio::test]
async fn a_repeated_acquire_answers_with_the_same_token_even_without_the_counter() {
    let server = Server::start(&[]);
    let (backend, mut admin) = (server.backend().await, server.admin());
    let claim = claim("a");
    let first = held(&backend, &claim).await;
    ask::<i64>(&mut admin, "DEL polylock:{a}:fence");
    ask::<i64>(&mut admin, "PEXPIRE polylock:{a} 30000");
    let again = held(&backend, &claim).await;
    assert_eq!(again.token, first.token);
    assert!(again.lease.since > first.lease.since);
    let left = Duration::from_millis(ask(&mut admin, "PTTL polylock:{a}"));
    assert!(ends(left) >= again.lease.end(), "a repeat keeps the claim for a further lease: {left:?}");
}

#[tokio::test]
async fn tokens_grow_when_all_data_is_flushed() {
    let server = Server::start(&[]);
    let backend = server.backend().await;
    let mut last = 0;
    for _ in 0..20 {
        let claim = claim("a");
        let token = held(&backend, &claim).await.token.value();
        assert!(token > last, "{token} after {last}");
        last = token;
        server.ask::<()>("FLUSHALL");
    }
}

#[tokio::test]
async fn tokens_grow_when_the_clock_is_behind_the_counter() {
    let server = Server::start(&[]);
    let (backend, mut admin) = (server.backend().await, server.admin());
    // As a clock that was years ahead left it.
    ask::<()>(&mut admin, "SET polylock:{a}:fence 2000000000000000");
    for expected in 2_000_000_000_000_001..2_000_000_000_000_010 {
        let claim = claim("a");
        assert_eq!(held(&backend, &claim).await.token.value(), expected);
        assert_eq!(backend.release(&claim).await.unwrap(), Released::Released);
    }
}

#[tokio::test]
async fn what_is_not_a_lock_is_refused_and_left_alone() {
    let server = Server::start(&[]);
    let (backend, mut admin) = (server.backend().await, server.admin());
    for make in [
        "SET polylock:{a} mine PX 60000",
        "SET polylock:{a} 00010203040506070809000102030405:7:x",
        "RPUSH polylock:{a} mine",
        "SET polylock:{a}:fence mine",
        "SET polylock:{a}:fence 9007199254740993",
        "RPUSH polylock:{a}:fence mine",
        "SET polylock:{a}:queue mine",
    ] {
        ask::<()>(&mut admin, "FLUSHALL");
        ask::<redis::Value>(&mut admin, make);
        let key = make.split(' ').nth(1).unwrap();
        let before: Vec<u8> = ask(&mut admin, &format!("DUMP {key}"));
        let claim = claim("a");
        let error = backend.acquire(&claim).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Foreign, "{make}: {error}");
        assert_eq!(backend.renew(&claim).await.unwrap(), Renewal::Lost, "{make}");
        assert_eq!(backend.release(&claim).await.unwrap(), Released::Absent, "{make}");
        assert_eq!(ask::<Vec<u8>>(&mut admin, &format!("DUMP {key}")), before, "{make}");
        assert_eq!(ask::<i64>(&mut admin, "DBSIZE"), 1, "{make}");
    }
}

#[tokio::test]
async fn every_verb_survives_that_the_server_forgets_the_scripts() {
    let server = Server::start(&[]);
    let (backend, mut admin) = (server.backend().await, server.admin());
    let mut forget = || ask::<()>(&mut admin, "SCRIPT FLUSH");
    let (ours, other) = (claim("a"), claim("a"));
    forget();
    held(&backend, &ours).await;
    forget();
    busy(&backend, &other).await;
    forget();
    assert!(matches!(backend.renew(&ours).await.unwrap(), Renewal::Kept(_)));
    forget();
    assert_eq!(backend.release(&ours).await.unwrap(), Released::Released);
}

#[tokio::test]
async fn a_full_server_refuses_new_locks_and_releases_old_ones() {
    let server = Server::start(&["--maxmemory-policy", "noeviction"]);
    let (backend, mut admin) = (server.backend().await, server.admin());
    let ours = claim("a");
    held(&backend, &ours).await;
    ask::<()>(&mut admin, "CONFIG SET maxmemory 1");
    let error = backend.acquire(&claim("b")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("out of memory"), "{error}");
    assert!(matches!(backend.renew(&ours).await.unwrap(), Renewal::Kept(_)));
    assert_eq!(backend.release(&ours).await.unwrap(), Released::Released);
    assert_eq!(ask::<i64>(&mut admin, "DBSIZE"), 1, "only the counter of a is left");
    ask::<()>(&mut admin, "CONFIG SET maxmemory 0");
    held(&backend, &claim("b")).await;
}

#[tokio::test]
async fn a_fraction_of_a_millisecond_is_rounded_up() {
    let server = Server::start(&[]);
    let backend = server.backend().await;
    for lease in [Duration::ZERO, Duration::from_nanos(1), Duration::from_micros(400), Duration::MAX] {
        let claim = Claim::new(name("a"), Owner::random().unwrap(), lease);
        let grant = held(&backend, &claim).await;
        assert!(grant.lease.length >= lease.min(Duration::from_millis(1)));
        // A key that had no expiry would never be free again.
        assert_ne!(server.ask::<i64>("PTTL polylock:{a}"), -1, "{lease:?}");
        backend.release(&claim).await.unwrap();
    }
}

#[tokio::test]
async fn busy_tells_when_the_lock_is_free_at_the_latest() {
    let server = Server::start(&[]);
    let backend = server.backend().await;
    let holder = Claim::new(name("a"), Owner::random().unwrap(), Duration::from_secs(3));
    let grant = held(&backend, &holder).await;
    let other = claim("a").queued(false);
    let left = busy(&backend, &other).await.recheck_within;
    assert!(left <= Duration::from_millis(3_001) && ends(left) >= grant.lease.end(), "{left:?}");
    tokio::time::sleep(left).await;
    assert!(matches!(backend.acquire(&other).await.unwrap(), Attempt::Held(_)));
    assert_eq!(backend.renew(&holder).await.unwrap(), Renewal::Lost);
    assert_eq!(backend.release(&holder).await.unwrap(), Released::Absent);
}
