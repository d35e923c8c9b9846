//! Locks of Curator and kazoo on the same nodes: they and ours exclude each other.
// Helpers are part of the tests, but the lint does not know that.
#![allow(clippy::unwrap_used)]

mod support;

use std::{process::Stdio, time::Duration};

use lock_core::{Backend, Released};
use support::{Ensemble, PATIENCE, busy, claim, held};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    time::timeout,
};

const CURATOR: [&str; 8] = [
    "curator-recipes",
    "curator-framework",
    "curator-client",
    "zookeeper",
    "zookeeper-jute",
    "guava",
    "slf4j-api",
    "slf4j-nop",
];

/// Another library's lock in a process of its own, which does what it is told line by line.
struct Peer {
    orders: ChildStdin,
    words: Lines<BufReader<ChildStdout>>,
    _process: Child,
}

impl Peer {
    async fn curator(server: &Ensemble) -> Self {
        let jars = CURATOR.map(|jar| format!("/usr/share/java/{jar}.jar")).join(":");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/Curator.java");
        let mut command = Command::new("java");
        command.args(["-cp", &jars, source, &server.servers().join(","), "/locks/a"]);
        Self::start(command, "default-jdk-headless libcurator-recipes-java").await
    }

    async fn kazoo(server: &Ensemble, patterns: &[&str]) -> Self {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/kazoo_lock.py");
        // The interpreter that Debian's packages are for.
        let mut command = Command::new("/usr/bin/python3");
        command.args([source, &server.servers().join(","), "/locks/a"]).args(patterns);
        Self::start(command, "python3-kazoo").await
    }

    async fn start(mut command: Command, packages: &str) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut process = command.spawn().unwrap_or_else(|error| panic!("{error}; install {packages}"));
        let orders = process.stdin.take().unwrap();
        let words = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut peer = Self { orders, words, _process: process };
        assert_eq!(peer.word().await.as_deref(), Some("ready"), "the peer did not start; install {packages}");
        peer
    }

    async fn tell(&mut self, order: &str) {
        self.orders.write_all(format!("{order}\n").as_bytes()).await.unwrap();
    }

    async fn word(&mut self) -> Option<String> {
        timeout(Duration::from_secs(60), self.words.next_line()).await.expect("a word of the peer").unwrap()
    }

    async fn says(&mut self, order: &str) -> String {
        self.tell(order).await;
        self.word().await.expect("the peer has ended")
    }
}

/// Held there, it is busy here, and the other way round; and each wakes the other's waiter.
async fn exclude_each_other(server: &Ensemble, peer: &mut Peer) {
    let backend = server.backend().await;
    assert_eq!(peer.says("try").await, "held");
    busy(&backend, &claim("a")).await;
    let ours = claim("a").queued(true);
    let wake = busy(&backend, &ours).await.wake.unwrap();
    assert_eq!(peer.says("release").await, "released");
    timeout(PATIENCE, wake).await.expect("the wake after the peer's release");
    held(&backend, &ours).await;

    assert_eq!(peer.says("try").await, "busy");
    peer.tell("acquire").await;
    // It stands behind us when the server knows of its node.
    let admin = server.admin().await;
    while admin.list_children("/locks/a").await.unwrap().len() < 2 {}
    let early = timeout(Duration::from_millis(300), peer.words.next_line()).await;
    assert!(early.is_err(), "{early:?} while we hold");
    assert_eq!(backend.release(&ours).await.unwrap(), Released::Released);
    assert_eq!(peer.word().await.as_deref(), Some("held"));
    busy(&backend, &claim("a")).await;
    assert_eq!(peer.says("release").await, "released");
    held(&backend, &claim("a")).await;
}

#[tokio::test]
async fn curators_mutex_and_ours_exclude_each_other() {
    let server = Ensemble::start(1);
    let mut peer = Peer::curator(&server).await;
    exclude_each_other(&server, &mut peer).await;
}

#[tokio::test]
async fn kazoos_lock_with_our_pattern_and_ours_exclude_each_other() {
    let server = Ensemble::start(1);
    let mut peer = Peer::kazoo(&server, &["-lock-"]).await;
    exclude_each_other(&server, &mut peer).await;
}

/// Why the pattern is needed: without it, kazoo takes our nodes for something else.
#[tokio::test]
async fn kazoos_lock_without_our_pattern_does_not_see_ours() {
    let server = Ensemble::start(1);
    let backend = server.backend().await;
    let mut peer = Peer::kazoo(&server, &[]).await;
    let ours = claim("a");
    held(&backend, &ours).await;
    assert_eq!(peer.says("try").await, "held");
    backend.release(&ours).await.unwrap();
    // We do see it.
    busy(&backend, &claim("a")).await;
}
