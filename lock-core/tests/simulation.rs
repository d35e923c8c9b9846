//! Random clients, faults, suspends and cancellations on paused time, replayed by seed.
//!
//! Two promises are checked at every grant: no other guard of the name is valid, and the fencing token
//! is larger than all before. At the end everything must be free again. A failure names its seed; run
//! it alone with `POLYLOCK_SEED=n`, or more of them with `POLYLOCK_SEEDS=n`.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, Weak},
    time::Duration,
};

use fastrand::Rng;
use lock_core::{
    Guard, Lock, Locks, Name, PausedClock, Result,
    wrap::{Injection, Script, Verb},
};
use support::{TTL, World, millis, secs};

const NAMES: [&str; 2] = ["a", "b"];

/// Every grant so far, by name.
#[derive(Default)]
struct Oracle {
    grants: Mutex<HashMap<Name, Vec<Granted>>>,
}

type Granted = (u64, Weak<Guard>);

impl Oracle {
    fn granted(&self, seed: u64, guard: Guard) -> Arc<Guard> {
        let guard = Arc::new(guard);
        let token = guard.fencing_token().value();
        let mut grants = self.grants.lock().unwrap();
        let grants = grants.entry(guard.name().clone()).or_default();
        if guard.is_held() {
            for (earlier, other) in grants.iter() {
                let valid = other.upgrade().is_some_and(|other| other.is_held());
                assert!(!valid, "seed {seed}: {token} is granted while {earlier} is valid");
            }
        }
        let largest = grants.iter().map(|(token, _)| *token).max().unwrap_or(0);
        // A grant may reach its caller late; a valid one never after a larger one.
        assert!(token > largest || !guard.is_held(), "seed {seed}: token {token} after {largest}");
        grants.push((token, Arc::downgrade(&guard)));
        guard
    }

    fn count(&self) -> usize {
        self.grants.lock().unwrap().values().map(Vec::len).sum()
    }
}

fn part_of(rng: &mut Rng, length: Duration) -> Duration {
    length.mul_f64(rng.f64())
}

async fn ask(lock: &Lock, rng: &mut Rng) -> Result<Option<Guard>> {
    match rng.u8(0..4) {
        0 => lock.try_acquire().await,
        1 => lock.acquire().await.map(Some),
        _ => {
            let patience = part_of(rng, TTL * 2);
            lock.acquire_within(patience).await
        }
    }
}

async fn client(seed: u64, locks: Locks, oracle: Arc<Oracle>, mut rng: Rng, rounds: usize) {
    for _ in 0..rounds {
        let lock = locks.lock(NAMES[rng.usize(0..NAMES.len())]).unwrap();
        let cancel_after = if rng.u8(0..4) == 0 { part_of(&mut rng, TTL) } else { secs(1_000) };
        let asked = tokio::time::timeout(cancel_after, ask(&lock, &mut rng)).await;
        let Ok(Ok(Some(guard))) = asked else {
            tokio::time::sleep(part_of(&mut rng, millis(500))).await;
            continue;
        };
        let guard = oracle.granted(seed, guard);
        let longest = TTL.mul_f64([0.001, 0.5, 2.0][rng.usize(0..3)]);
        let hold = part_of(&mut rng, longest);
        tokio::time::sleep(hold).await;
        let guard = Arc::into_inner(guard).expect("the oracle keeps none");
        match rng.u8(0..3) {
            0 => drop(guard),
            1 => drop(tokio::time::timeout(part_of(&mut rng, millis(100)), guard.release()).await),
            _ => drop(guard.release().await),
        }
    }
}

async fn nemesis(scripts: Vec<Script>, clock: PausedClock, mut rng: Rng) {
    use Injection::{HangAfter, HangBefore, LoseReply, Pass, Refuse};
    loop {
        tokio::time::sleep(part_of(&mut rng, secs(8))).await;
        let script = &scripts[rng.usize(0..scripts.len())];
        for verb in [Verb::Acquire, Verb::Renew, Verb::Release] {
            script.always(verb, [Pass, Refuse, LoseReply, HangBefore, HangAfter][rng.usize(0..5)]);
        }
        if rng.u8(0..8) == 0 {
            clock.suspend(part_of(&mut rng, TTL * 3));
        }
        tokio::time::sleep(part_of(&mut rng, TTL * 2)).await;
        script.heal();
    }
}

async fn simulate(seed: u64) -> usize {
    let mut rng = Rng::with_seed(seed);
    let world = World::new();
    let oracle = Arc::new(Oracle::default());
    let clients: Vec<(Locks, Script)> = (0..3).map(|_| world.client()).collect();
    let scripts: Vec<Script> = clients.iter().map(|(_, script)| script.clone()).collect();
    let nemesis = tokio::spawn(nemesis(scripts.clone(), world.clock.clone(), rng.fork()));
    let tasks: Vec<_> = clients
        .iter()
        .flat_map(|(locks, _)| [locks.clone(), locks.clone()])
        .map(|locks| tokio::spawn(client(seed, locks, oracle.clone(), rng.fork(), 12)))
        .collect();
    for task in tasks {
        task.await.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
    nemesis.abort();
    scripts.iter().for_each(Script::heal);

    // Every lease is over by then, every clean-up answered.
    tokio::time::sleep(TTL * 3).await;
    for (locks, _) in &clients {
        let statistics = locks.statistics();
        assert_eq!((statistics.held, statistics.waiting), (0, 0), "seed {seed}");
        for name in NAMES {
            let free = locks.lock(name).unwrap().try_acquire().await.unwrap();
            let free = free.unwrap_or_else(|| panic!("seed {seed}: {name} is not free"));
            free.release().await.unwrap();
        }
        let unreleased = locks.close(secs(0)).await;
        assert!(unreleased.is_empty(), "seed {seed}: {unreleased:?}");
    }
    assert_eq!(world.store.names(), 0, "seed {seed}");
    oracle.count()
}

#[test]
fn no_fault_makes_two_guards_valid_or_a_token_repeat() {
    let number = |key| std::env::var(key).ok().map(|value: String| value.parse::<u64>().unwrap());
    let seeds = match number("POLYLOCK_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("POLYLOCK_SEEDS").unwrap_or(100),
    };
    let mut grants = 0;
    for seed in seeds.clone() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        grants += runtime.unwrap().block_on(simulate(seed));
    }
    println!("{grants} grants in {} runs", seeds.end - seeds.start);
    assert!(grants as u64 > (seeds.end - seeds.start) * 10, "only {grants} grants: the simulation idles");
}
