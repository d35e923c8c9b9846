//! What an operator reads: spans, events, and no secrets.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::{
    io,
    sync::{Arc, Mutex},
};

use lock_core::wrap::{Injection, Verb};
use support::{World, secs};
use tracing_subscriber::fmt::MakeWriter;

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[tokio::test(start_paused = true)]
async fn every_verb_and_every_loss_is_told_and_the_owner_is_not() {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_ansi(false)
        .with_writer(log.clone())
        .finish();
    let _default = tracing::subscriber::set_default(subscriber);

    let world = World::new();
    let (locks, script) = world.client();
    let lock = locks.lock("orders/42").unwrap();
    let guard = lock.acquire().await.unwrap();
    let owner = guard.owner();
    tokio::time::sleep(secs(5)).await;
    script.always(Verb::Renew, Injection::Refuse);
    guard.lost().await;
    let shown = format!("{guard:?} {lock:?} {locks:?}");
    guard.release().await.unwrap();

    let text = log.text() + &shown;
    for span in ["acquire{name=orders/42", "renew{name=orders/42", "release{name=orders/42"] {
        assert!(text.contains(span), "no span {span} in:\n{text}");
    }
    let lost = text.lines().find(|line| line.contains("lost: no renewal was confirmed")).unwrap();
    assert!(lost.contains("WARN") && lost.contains("orders/42") && lost.contains("token=1"), "{lost}");
    assert!(text.contains("a renewal failed"));
    assert!(!text.contains(&owner.to_hex()), "an owner is a secret:\n{text}");
}
