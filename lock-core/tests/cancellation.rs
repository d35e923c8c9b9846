//! A dropped future leaves nothing behind, wherever it is dropped.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use lock_core::{
    Guard, Lock, Result,
    wrap::{Injection, Verb},
};
use support::{World, secs};

/// Polls a future so often, and drops it then. `Some` if it ended before.
struct Polls<F> {
    future: Pin<Box<F>>,
    left: usize,
}

impl<F: Future> Future for Polls<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        self.left -= 1;
        self.future.as_mut().poll(context).map(Some)
    }
}

#[derive(Clone, Copy, Debug)]
enum How {
    Acquire,
    Within,
    Try,
}

async fn ask(how: How, lock: Lock) -> Result<Option<Guard>> {
    match how {
        How::Acquire => lock.acquire().await.map(Some),
        How::Within => lock.acquire_within(secs(5)).await,
        How::Try => lock.try_acquire().await,
    }
}

/// Drops at every poll count until one attempt runs to its end, and checks the store after each.
async fn drop_at_every_poll(how: How, busy: bool, injection: Injection) {
    let mut count = 0;
    loop {
        let world = World::new();
        let (locks, script) = world.client();
        let (rival, _) = world.client();
        let held = if busy { Some(rival.lock("x").unwrap().acquire().await.unwrap()) } else { None };
        script.next(Verb::Acquire, injection);

        let future = Box::pin(ask(how, locks.lock("x").unwrap()));
        let polled = tokio::spawn(Polls { future, left: count });
        let releaser = tokio::spawn(async move {
            tokio::time::sleep(secs(1)).await;
            drop(held);
        });
        let ended = polled.await.unwrap();
        let finished = ended.is_some();
        drop(ended);
        script.heal();
        releaser.await.unwrap();

        // Well before any lease could end it.
        tokio::time::sleep(secs(2)).await;
        assert_eq!(world.store.names(), 0, "{how:?}, busy {busy}, {injection:?}: left after {count} polls");
        assert_eq!((locks.statistics().held, locks.statistics().waiting), (0, 0));
        let free = rival.lock("x").unwrap().try_acquire().await.unwrap();
        assert!(free.is_some(), "{how:?}, busy {busy}, {injection:?}: not free after {count} polls");
        assert!(count < 100, "the future is never ready");
        if finished {
            assert!(count > 0);
            return;
        }
        count += 1;
    }
}

#[tokio::test(start_paused = true)]
async fn an_acquire_dropped_at_any_poll_leaves_nothing() {
    for how in [How::Acquire, How::Within, How::Try] {
        for busy in [false, true] {
            let injections = [
                Injection::Pass,
                Injection::Refuse,
                Injection::LoseReply,
                Injection::HangBefore,
                Injection::HangAfter,
            ];
            for injection in injections {
                drop_at_every_poll(how, busy, injection).await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_dropped_at_any_poll_still_releases() {
    for injection in [Injection::Pass, Injection::Refuse, Injection::LoseReply] {
        for left in 0..6 {
            let world = World::new();
            let (locks, script) = world.client();
            let guard = locks.lock("x").unwrap().acquire().await.unwrap();
            script.next(Verb::Release, injection);
            let _ = Polls { future: Box::pin(guard.release()), left }.await;
            tokio::time::sleep(secs(1)).await;
            assert_eq!(world.store.names(), 0, "{injection:?}, {left} polls");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_is_dropped_lets_the_next_in_line_pass() {
    let world = World::new();
    let (locks, _) = world.client();
    let (rival, _) = world.client();
    let held = rival.lock("x").unwrap().acquire().await.unwrap();
    let lock = locks.lock("x").unwrap();
    let waiting: Vec<_> = (0..3)
        .map(|_| {
            let lock = lock.clone();
            tokio::spawn(async move { lock.acquire().await })
        })
        .collect();
    tokio::time::sleep(secs(1)).await;
    assert_eq!(locks.statistics().waiting, 3);
    let [head, middle, last] = waiting.try_into().unwrap();
    head.abort();
    middle.abort();
    tokio::time::sleep(secs(1)).await;
    assert_eq!(locks.statistics().waiting, 1);
    drop(held);
    let guard = tokio::time::timeout(secs(1), last).await.unwrap().unwrap().unwrap();
    assert!(guard.is_held());
}
