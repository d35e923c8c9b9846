//! Hints may be early, late or lost; answers may be shorter than asked; neither may break anything.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::{
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use lock_core::{
    Attempt, Backend, Busy, Claim, Doubt, Grant, Guarantees, Lease, Locks, Loss, Released, Renewal, Result,
    memory::Memory,
};
use support::{TTL, World, millis, secs};
use tokio::time::{Instant, timeout};

type AlterAttempt = dyn Fn(Attempt) -> Attempt + Send + Sync;
type AlterRenewal = dyn Fn(Renewal) -> Renewal + Send + Sync;

/// The memory backend with its answers altered.
struct Altered {
    backend: Memory,
    attempt: Box<AlterAttempt>,
    renewal: Box<AlterRenewal>,
    renewed: Arc<Mutex<Vec<Instant>>>,
    asked: Arc<Mutex<Vec<Instant>>>,
}

impl Altered {
    fn new(world: &World) -> Self {
        Self {
            backend: world.store.clone(),
            attempt: Box::new(|attempt| attempt),
            renewal: Box::new(|renewal| renewal),
            renewed: Arc::default(),
            asked: Arc::default(),
        }
    }

    fn locks(self, world: &World) -> Locks {
        Locks::with_clock(self, World::options(), Arc::new(world.clock.clone())).unwrap()
    }
}

#[async_trait]
impl Backend for Altered {
    fn guarantees(&self) -> Guarantees {
        self.backend.guarantees()
    }

    async fn acquire(&self, claim: &Claim) -> Result<Attempt> {
        self.asked.lock().unwrap().push(Instant::now());
        Ok((self.attempt)(self.backend.acquire(claim).await?))
    }

    async fn renew(&self, claim: &Claim) -> Result<Renewal> {
        self.renewed.lock().unwrap().push(Instant::now());
        Ok((self.renewal)(self.backend.renew(claim).await?))
    }

    async fn release(&self, claim: &Claim) -> Result<Released> {
        self.backend.release(claim).await
    }
}

impl fmt::Debug for Altered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Altered")
    }
}

fn with_wake(attempt: Attempt, wake: impl Fn() -> Option<lock_core::Wake>) -> Attempt {
    match attempt {
        Attempt::Busy(busy) => Attempt::Busy(Busy::new(wake(), busy.recheck_within)),
        held => held,
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_wake_costs_one_poll() {
    let world = World::new();
    let (holder, _) = world.client();
    let held = holder.lock("x").unwrap().acquire().await.unwrap();
    let mut deaf = Altered::new(&world);
    deaf.attempt = Box::new(|attempt| with_wake(attempt, || Some(Box::pin(std::future::pending()))));
    let locks = deaf.locks(&world);
    let waiting = tokio::spawn(async move { locks.lock("x").unwrap().acquire().await.unwrap() });
    tokio::time::sleep(secs(1)).await;
    let begun = Instant::now();
    drop(held);
    drop(waiting.await.unwrap());
    // A third of the ttl, and some jitter.
    assert!(begun.elapsed() <= TTL / 3 + millis(25), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn without_wakes_the_poll_slows_down_and_is_not_in_step() {
    let world = World::new();
    let (holder, _) = world.client();
    let _held = holder.lock("x").unwrap().acquire().await.unwrap();
    let mut mute = Altered::new(&world);
    mute.attempt = Box::new(|attempt| with_wake(attempt, || None));
    let asked = mute.asked.clone();
    let locks = mute.locks(&world);
    assert!(locks.lock("x").unwrap().acquire_within(secs(60)).await.unwrap().is_none());
    let asked = asked.lock().unwrap();
    assert!((100..=300).contains(&asked.len()), "{} polls in a minute", asked.len());
    let pauses: Vec<Duration> = asked.windows(2).map(|pair| pair[1] - pair[0]).skip(10).collect();
    let longest = pauses.iter().max().unwrap();
    let shortest = pauses[..pauses.len() - 1].iter().min().unwrap();
    assert!(*longest <= millis(502) && *longest - *shortest > millis(50), "{shortest:?} to {longest:?}");
}

#[tokio::test(start_paused = true)]
async fn a_wake_that_keeps_firing_for_nothing_is_harmless() {
    let world = World::new();
    let (holder, _) = world.client();
    let held = holder.lock("x").unwrap().acquire().await.unwrap();
    let mut eager = Altered::new(&world);
    eager.attempt = Box::new(|attempt| {
        with_wake(attempt, || {
            Some(Box::pin(async {
                tokio::time::sleep(millis(10)).await;
                None
            }))
        })
    });
    let locks = eager.locks(&world);
    let waiting = tokio::spawn(async move { locks.lock("x").unwrap().acquire().await.unwrap() });
    tokio::time::sleep(secs(1)).await;
    assert!(!waiting.is_finished());
    drop(held);
    assert!(timeout(secs(1), waiting).await.unwrap().unwrap().is_held());
}

#[tokio::test(start_paused = true)]
async fn a_promotion_with_little_of_its_lease_left_is_asked_about_first() {
    let world = World::new();
    let (holder, _) = world.client();
    let held = holder.lock("x").unwrap().acquire().await.unwrap();
    let (locks, script) = world.client();
    let lock = locks.lock("x").unwrap();
    // The server hears nothing of this waiter for more than half of its lease.
    let waiting = tokio::spawn(async move { lock.acquire().await.unwrap() });
    tokio::time::sleep(millis(1)).await;
    script.always(lock_core::wrap::Verb::Acquire, lock_core::wrap::Injection::Refuse);
    tokio::time::sleep(secs(7)).await;
    script.heal();
    drop(held);
    let guard = waiting.await.unwrap();
    assert!(guard.remaining() > TTL * 9 / 10, "held on an old lease: {:?}", guard.remaining());
}

#[tokio::test(start_paused = true)]
async fn a_promotion_is_renewed_when_a_third_of_its_lease_is_over() {
    let world = World::new();
    let since = lock_core::Clock::now(&world.clock);
    for (age, at_once) in [(Duration::ZERO, false), (TTL / 3, true)] {
        tokio::time::sleep(age).await;
        let mut promoting = Altered::new(&world);
        promoting.attempt = Box::new(move |attempt| match attempt {
            Attempt::Held(grant) => {
                let lease = Lease::new(since, grant.lease.length);
                let promoted = async move { Some(Grant::new(grant.token, lease)) };
                Attempt::Busy(Busy::new(Some(Box::pin(promoted)), TTL))
            }
            busy => busy,
        });
        let renewed = promoting.renewed.clone();
        let guard = promoting.locks(&world).lock("x").unwrap().acquire().await.unwrap();
        tokio::time::sleep(millis(20)).await;
        assert_eq!(renewed.lock().unwrap().len(), usize::from(at_once), "on a lease of age {age:?}");
        guard.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_doubt_is_renewed_at_once() {
    let world = World::new();
    let doubt = Doubt::new();
    let mut doubtful = Altered::new(&world);
    let raiser = doubt.clone();
    doubtful.attempt = Box::new(move |attempt| match attempt {
        Attempt::Held(grant) => {
            Attempt::Held(Grant::new(grant.token, grant.lease).with_doubt(doubt.signal()))
        }
        busy => busy,
    });
    let renewed = doubtful.renewed.clone();
    let guard = doubtful.locks(&world).lock("x").unwrap().acquire().await.unwrap();
    for _ in 0..3 {
        tokio::time::sleep(millis(100)).await;
        raiser.raise();
        tokio::time::sleep(millis(1)).await;
    }
    assert_eq!(renewed.lock().unwrap().len(), 3);
    world.store.revoke(guard.name());
    raiser.raise();
    assert_eq!(timeout(millis(1), guard.lost()).await.unwrap(), Loss::Revoked);
}

#[tokio::test(start_paused = true)]
async fn the_newest_lease_counts_even_if_it_is_shorter() {
    let world = World::new();
    let mut shrinking = Altered::new(&world);
    shrinking.renewal = Box::new(|renewal| match renewal {
        Renewal::Kept(lease) => Renewal::Kept(Lease::new(lease.since, lease.length / 2)),
        lost => lost,
    });
    let guard = shrinking.locks(&world).lock("x").unwrap().acquire().await.unwrap();
    let before = guard.ttl();
    tokio::time::sleep(before / 3 + millis(1)).await;
    assert!(guard.remaining() < before / 2, "{:?}", guard.remaining());
    assert!(guard.ttl() < before / 2, "the effective ttl is not told: {:?}", guard.ttl());
    tokio::time::sleep(TTL).await;
    assert!(guard.is_held(), "renewals do not follow the shorter lease");
}

#[tokio::test(start_paused = true)]
async fn a_renewal_on_an_old_heartbeat_counts_from_the_heartbeat() {
    let world = World::new();
    let mut batched = Altered::new(&world);
    batched.renewal = Box::new(|renewal| match renewal {
        Renewal::Kept(lease) => Renewal::Kept(Lease::new(lease.since - secs(2), lease.length)),
        lost => lost,
    });
    let guard = batched.locks(&world).lock("x").unwrap().acquire().await.unwrap();
    tokio::time::sleep(TTL / 3).await;
    assert!(guard.remaining() <= guard.ttl() - secs(2), "{:?}", guard.remaining());
}
