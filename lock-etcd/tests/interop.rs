//! `etcdctl lock` and this crate on one lock.
// Helpers are part of the tests, but the lint does not know that.
#![allow(clippy::unwrap_used)]

mod support;

use std::{
    io::{BufRead, BufReader},
    process::{Child, Stdio},
    time::{Duration, Instant},
};

use lock_core::{Backend, Released};
use rustix::process::{Pid, Signal, kill_process};
use support::{PATIENCE, Server, busy, claim, held, keys, lock_name, soon};

/// `etcdctl lock` on a name, which prints its key when it holds.
fn lock(server: &Server, name: &str) -> Child {
    server.etcdctl().args(["lock", &lock_name(server, name)]).stdout(Stdio::piped()).spawn().unwrap()
}

/// Waits until it holds; its key.
fn key_of(child: &mut Child) -> String {
    let mut key = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut key).unwrap();
    key.trim().to_owned()
}

fn interrupt(mut child: Child) {
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    child.wait().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_etcdctl_holds_is_busy_until_it_lets_go() {
    let server = Server::start(&[]);
    let backend = server.backend().await;
    let mut theirs = lock(&server, "orders/42");
    let key = key_of(&mut theirs);
    assert!(key.starts_with("polylock/orders%2F42/"), "{key}");

    let tried = busy(&backend, &claim("orders/42").queued(false)).await;
    assert!(tried.wake.is_none());
    let waiting = claim("orders/42");
    let told = busy(&backend, &waiting).await;
    interrupt(theirs);
    soon("the wake", told.wake.unwrap()).await;
    held(&backend, &waiting).await;
    assert_eq!(backend.release(&waiting).await.unwrap(), Released::Released);
}

#[tokio::test(flavor = "multi_thread")]
async fn etcdctl_waits_for_what_is_held_and_stands_in_the_same_queue() {
    let server = Server::start(&[]);
    let (backend, mut admin) = (server.backend().await, server.admin().await);
    let (first, last) = (claim("a"), claim("a"));
    held(&backend, &first).await;
    let mut theirs = lock(&server, "a");
    let since = Instant::now();
    while keys(&mut admin).await.len() < 2 {
        assert!(since.elapsed() < PATIENCE, "etcdctl is not in the queue");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let told = busy(&backend, &last).await;

    // If it does not hold now, this waits for ever.
    assert_eq!(backend.release(&first).await.unwrap(), Released::Released);
    let key = key_of(&mut theirs);
    assert!(key.starts_with("polylock/a/"), "{key}");
    busy(&backend, &last).await;
    interrupt(theirs);
    soon("the wake", told.wake.unwrap()).await;
    held(&backend, &last).await;
}
