//! Closing, runtimes that end, threads without one, and errors at release.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use async_trait::async_trait;
use lock_core::{
    Attempt, Backend, Claim, ErrorKind, Guarantees, Locks, Loss, Options, PausedClock, Promise, Release,
    Released, Renewal, Result,
    memory::Memory,
    wrap::{Faulty, Injection, Verb},
};
use support::{TTL, World, millis, secs};
use tokio::{runtime::Runtime, time::Instant};

#[tokio::test(start_paused = true)]
async fn close_ends_everything_and_names_what_stayed() {
    let world = World::new();
    let (locks, script) = world.client();
    let (rival, _) = world.client();
    let foreign = rival.lock("foreign").unwrap().acquire().await.unwrap();
    let held = locks.lock("held").unwrap().acquire().await.unwrap();
    let dropped = locks.lock("dropped").unwrap().acquire().await.unwrap();
    let waiting = tokio::spawn({
        let lock = locks.lock("foreign").unwrap();
        async move { lock.acquire().await }
    });
    tokio::time::sleep(millis(1)).await;

    let begun = Instant::now();
    let closing = tokio::spawn({
        let locks = locks.clone();
        async move { locks.close(secs(3)).await }
    });
    assert_eq!(held.lost().await, Loss::Closed);
    assert_eq!(waiting.await.unwrap().unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(locks.lock("new").unwrap().acquire().await.unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(locks.lock("new").unwrap().try_acquire().await.unwrap_err().kind(), ErrorKind::Closed);
    drop(dropped);
    tokio::time::sleep(millis(1)).await;
    assert!(rival.lock("dropped").unwrap().try_acquire().await.unwrap().is_some());
    assert!(
        rival.lock("held").unwrap().try_acquire().await.unwrap().is_none(),
        "released while the guard lived"
    );
    assert_eq!(closing.await.unwrap(), []);
    assert_eq!(begun.elapsed(), secs(3));
    assert!(rival.lock("held").unwrap().try_acquire().await.unwrap().is_some());
    assert!(foreign.is_held(), "somebody else's lock was touched");

    let (locks, stuck) = world.client();
    let guard = locks.lock("stuck").unwrap().acquire().await.unwrap();
    stuck.always(Verb::Release, Injection::Refuse);
    drop(guard);
    let names = locks.close(secs(0)).await;
    assert_eq!(names.iter().map(|name| name.as_str()).collect::<Vec<_>>(), ["stuck"]);
    drop(script);
}

#[tokio::test(start_paused = true)]
async fn release_says_what_it_found() {
    let world = World::new();
    let (locks, script) = world.client();
    let lock = locks.lock("x").unwrap();

    let guard = lock.acquire().await.unwrap();
    assert_eq!(guard.release().await.unwrap(), Release::Released);

    let guard = lock.acquire().await.unwrap();
    world.store.revoke(guard.name());
    assert_eq!(guard.release().await.unwrap(), Release::AlreadyLost(Loss::Revoked));

    let guard = lock.acquire().await.unwrap();
    script.next(Verb::Release, Injection::LoseReply);
    assert_eq!(guard.release().await.unwrap(), Release::Released, "the repeat finds what the first one did");

    let guard = lock.acquire().await.unwrap();
    script.always(Verb::Release, Injection::Refuse);
    let begun = Instant::now();
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Unavailable);
    // The verb limit is a sixth of the ttl.
    assert!(begun.elapsed() <= TTL / 6 + millis(1), "{:?}", begun.elapsed());
    script.heal();
    tokio::time::sleep(secs(2)).await;
    assert_eq!(world.store.names(), 0, "not cleaned up in the background");

    let guard = lock.acquire().await.unwrap();
    script.always(Verb::Release, Injection::Deny);
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::Denied);
}

#[tokio::test(start_paused = true)]
async fn a_release_gives_up_when_the_lease_is_over() {
    let world = World::new();
    let (locks, script) = world.client();
    let guard = locks.lock("x").unwrap().acquire().await.unwrap();
    script.always(Verb::Release, Injection::Refuse);
    drop(guard);
    tokio::time::sleep(TTL * 2).await;
    let asked = script.calls(Verb::Release);
    assert!((10..40).contains(&asked), "{asked}");
    assert_eq!(locks.statistics().abandoned, 1);
    tokio::time::sleep(TTL * 2).await;
    assert_eq!(script.calls(Verb::Release), asked, "asked after the lease was over");
}

#[test]
fn a_guard_may_be_dropped_without_a_runtime_and_after_its_shutdown() {
    let store = Memory::new();
    // Long enough that the runtime's end, not the lease's, is what the guard finds.
    let options = || Options::default().with_ttl(secs(3));
    let runtime = Runtime::new().unwrap();
    let open = || {
        let _inside = runtime.enter();
        Locks::with_options(store.clone(), options()).unwrap()
    };
    let acquire = |locks: &Locks| runtime.block_on(locks.lock("x").unwrap().acquire()).unwrap();
    let locks = open();

    let guard = acquire(&locks);
    std::thread::spawn(move || drop(guard)).join().unwrap();
    let guard = acquire(&locks);
    runtime.block_on(async { tokio::task::spawn_blocking(move || drop(guard)).await.unwrap() });
    let guard = acquire(&locks);
    let panicked = std::thread::spawn(move || {
        let _guard = guard;
        std::panic::resume_unwind(Box::new("on purpose"));
    });
    assert!(panicked.join().is_err());
    drop(acquire(&locks));

    let guard = acquire(&locks);
    let second = Runtime::new().unwrap();
    let waiting = second.spawn({
        let lock = locks.lock("x").unwrap();
        async move { lock.acquire().await }
    });
    let lost = guard.lost();
    runtime.shutdown_timeout(Duration::from_secs(1));
    assert_eq!(second.block_on(lost), Loss::RuntimeGone);
    assert!(!guard.is_held());
    let told = second.block_on(waiting).unwrap().map(drop);
    assert!(told.is_err(), "a waiter hangs on a runtime that is gone");
    assert_eq!(second.block_on(guard.release()).unwrap(), Release::AlreadyLost(Loss::RuntimeGone));
    // Its lease ends what the runtime could not release.
    second.block_on(async {
        let locks = Locks::with_options(store.clone(), options()).unwrap();
        assert!(locks.lock("x").unwrap().acquire_within(secs(20)).await.unwrap().is_some());
    });
}

#[test]
fn a_keeper_that_never_ran_is_a_loss_all_the_same() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let guard = runtime.block_on(async {
        let locks = Locks::new(Memory::new()).unwrap();
        locks.lock("x").unwrap().acquire().await.unwrap()
    });
    assert!(guard.is_held());
    drop(runtime);
    assert!(!guard.is_held(), "held, though nobody will ever renew it");
}

#[test]
fn opening_outside_a_runtime_is_an_error() {
    assert_eq!(Locks::new(Memory::new()).unwrap_err().kind(), ErrorKind::NoRuntime);
}

#[test]
fn a_current_thread_runtime_is_enough() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let locks = Locks::with_options(Memory::new(), Options::default().with_ttl(secs(3))).unwrap();
        let guard = locks.lock("x").unwrap().acquire().await.unwrap();
        tokio::time::timeout(secs(20), async {
            while locks.statistics().renewals == 0 {
                tokio::time::sleep(millis(10)).await;
            }
        })
        .await
        .expect("a renewal");
        assert!(guard.is_held());
        guard.release().await.unwrap();
        assert_eq!(locks.close(Duration::ZERO).await, []);
    });
}

#[tokio::test(start_paused = true)]
async fn an_unmet_requirement_is_an_error_that_names_it() {
    let world = World::new();
    let (locks, _) = world.client();
    assert!(locks.clone().require([Promise::Fifo, Promise::Push]).is_ok());
    let error = locks.require([Promise::Fifo, Promise::TakeoverAtOnce]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unmet);
    assert!(error.to_string().contains("take-over") && !error.to_string().contains("first come"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn guards_outlive_their_locks() {
    let world = World::new();
    let (locks, _) = world.client();
    let guard = locks.lock("x").unwrap().acquire().await.unwrap();
    drop(locks);
    tokio::time::sleep(TTL * 3).await;
    assert!(guard.is_held());
    assert_eq!(guard.release().await.unwrap(), Release::Released);
}

/// Renewals hang; verbs that run beside them are counted.
#[derive(Debug)]
struct HangingRenewals {
    store: Memory,
    under_way: AtomicUsize,
    overlaps: Arc<AtomicUsize>,
}

#[async_trait]
impl Backend for HangingRenewals {
    fn guarantees(&self) -> Guarantees {
        self.store.guarantees()
    }

    async fn acquire(&self, claim: &Claim) -> Result<Attempt> {
        self.store.acquire(claim).await
    }

    async fn renew(&self, _: &Claim) -> Result<Renewal> {
        struct UnderWay<'a>(&'a AtomicUsize);
        impl Drop for UnderWay<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, SeqCst);
            }
        }
        self.under_way.fetch_add(1, SeqCst);
        let _under_way = UnderWay(&self.under_way);
        std::future::pending().await
    }

    async fn release(&self, claim: &Claim) -> Result<Released> {
        self.overlaps.fetch_add(self.under_way.load(SeqCst), SeqCst);
        self.store.release(claim).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_backend_has_one_verb_of_a_claim_at_a_time() {
    let clock = Arc::new(PausedClock::new());
    let (store, overlaps) = (Memory::with_clock(clock.clone()), Arc::<AtomicUsize>::default());
    let backend = HangingRenewals { store, under_way: AtomicUsize::new(0), overlaps: overlaps.clone() };
    let locks = Locks::with_clock(backend, Options::default().with_ttl(TTL), clock).unwrap();
    let lock = locks.lock("x").unwrap();
    for _ in 0..2 {
        let released = lock.acquire().await.unwrap();
        tokio::time::sleep(TTL / 3).await;
        assert_eq!(released.release().await.unwrap(), Release::Released);
        let dropped = lock.acquire().await.unwrap();
        tokio::time::sleep(TTL / 3).await;
        drop(dropped);
    }
    lock.acquire().await.unwrap().release().await.unwrap();
    assert!(locks.statistics().renew.calls > 2, "no renewal was under way");
    assert_eq!(overlaps.load(SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_held_for_a_moment_costs_no_task() {
    let world = World::new();
    let (locks, _) = world.client();
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    let lock = locks.lock("x").unwrap();
    for _ in 0..100 {
        let guard = lock.acquire().await.unwrap();
        assert_eq!(tasks(), before);
        guard.release().await.unwrap();
    }
    let guard = lock.acquire().await.unwrap();
    tokio::time::sleep(millis(20)).await;
    assert_eq!(tasks(), before + 1, "nobody renews it");
    guard.release().await.unwrap();
    tokio::time::sleep(millis(1)).await;
    assert_eq!(tasks(), before);
}

#[tokio::test]
async fn opening_and_closing_leaves_no_tasks() {
    let metrics = tokio::runtime::Handle::current().metrics();
    let before = metrics.num_alive_tasks();
    for _ in 0..100 {
        let (backend, _script) = Faulty::new(Memory::new());
        let locks = Locks::new(backend).unwrap();
        locks.lock("x").unwrap().acquire().await.unwrap().release().await.unwrap();
        assert_eq!(locks.close(Duration::ZERO).await, []);
    }
    let gone = async {
        while metrics.num_alive_tasks() > before {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(5), gone).await.expect("tasks are left");
}
