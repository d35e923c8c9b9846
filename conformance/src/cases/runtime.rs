//! Runtimes, threads and panics: guards are dropped anywhere, runtimes end, nothing piles up.

use std::{
    fs,
    future::Future,
    io,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    thread,
    time::Duration,
};

use lock_core::{Guard, Loss, Moment, Name, Release};
use tokio::{
    runtime::{Builder, Handle, Runtime},
    task::block_in_place,
};

use super::{
    reconnect::{next_request, patient},
    waiting::until,
};
use crate::{
    Stage,
    case::{Case, Failure, Outcome, case},
    link::Way,
    stage::Client,
};

pub(crate) const CASES: &[Case] = &[
    case!(a_guard_may_be_dropped_anywhere),
    case!(a_panic_that_drops_the_guard_frees_the_lock),
    case!(a_guard_outlives_its_runtime),
    case!(the_end_of_the_runtime_is_a_loss),
    case!(a_blocked_runtime_holds_no_longer_than_its_lease),
    case!(a_current_thread_runtime_is_enough),
    case!(locks_lost_in_the_background_do_no_harm),
    case!(connecting_and_closing_leaves_nothing_behind),
];

/// Runs a future on a runtime of one thread of its own, while this one's thread waits.
pub(super) async fn on_a_thread<F: Future<Output = Outcome>>(
    work: impl FnOnce() -> F + Send + 'static,
) -> Outcome {
    let ended = thread::spawn(move || current_thread()?.block_on(work()));
    block_in_place(|| ended.join()).unwrap_or_else(|panic| resume_unwind(panic))
}

/// How long this thread has been running on a processor.
pub(super) fn cpu_time() -> io::Result<Duration> {
    let text = fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanos = text.split(' ').next().and_then(|nanos| nanos.parse().ok());
    nanos.map(Duration::from_nanos).ok_or_else(|| io::Error::other(format!("{text:?} is no schedstat")))
}

fn current_thread() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

/// Makes a client, which lives on another runtime, and has it acquire.
///
/// The guard stays out of the history, which would look after it on that runtime.
fn acquire_on(runtime: &Runtime, stage: &Stage, name: &Name) -> Result<(Client, Guard), Failure> {
    block_in_place(|| {
        runtime.block_on(async {
            let client = stage.client().await?;
            let guard = client.lock(name).acquire().await?;
            Ok((client, guard))
        })
    })
}

/// Drops a guard somewhere; an error if that panicked.
type Place = fn(Guard) -> thread::Result<()>;

/// In a thread without a runtime, on a blocking thread, inside another runtime.
async fn a_guard_may_be_dropped_anywhere(stage: Stage) -> Outcome {
    let (client, other) = (stage.patient_client().await?, stage.patient_client().await?);
    let places: [(&str, Place); 3] = [
        ("a plain thread", |guard| thread::spawn(|| drop(guard)).join()),
        ("a blocking thread", |guard| {
            let dropped = Handle::current().spawn_blocking(|| drop(guard));
            block_in_place(|| Handle::current().block_on(dropped)).map_err(|error| Box::new(error) as _)
        }),
        ("another runtime", |guard| {
            let dropped =
                thread::spawn(|| current_thread().map(|other| other.block_on(async { drop(guard) })));
            dropped.join().map(drop)
        }),
    ];
    for (place, drop_in) in places {
        let name = stage.name();
        let guard = client.acquire(&name).await?.into_guard();
        assert!(drop_in(guard).is_ok(), "a panic in {place}");
        stage.within(4.0, place, other.acquire(&name)).await??;
    }
    Ok(())
}

/// In a thread, in a task, and inside `catch_unwind` on the runtime itself.
async fn a_panic_that_drops_the_guard_frees_the_lock(stage: Stage) -> Outcome {
    let (client, other) = (stage.patient_client().await?, stage.patient_client().await?);
    // Unwinds as a panic does, without a message on stderr.
    let unwind = |guard: Guard| {
        let _guard = guard;
        resume_unwind(Box::new("on purpose"))
    };
    for place in ["a thread", "a task", "the caller"] {
        let name = stage.name();
        let guard = client.acquire(&name).await?.into_guard();
        let unwound = match place {
            "a thread" => thread::spawn(move || unwind(guard)).join().is_err(),
            "a task" => tokio::spawn(async move { unwind(guard) }).await.is_err(),
            _ => catch_unwind(AssertUnwindSafe(|| unwind(guard))).is_err(),
        };
        assert!(unwound);
        stage.within(4.0, place, other.acquire(&name)).await??;
    }
    Ok(())
}

/// Runtimes to shut down: one that has run nothing but the acquire, and one with a thread of its own.
const RUNTIMES: [fn() -> io::Result<Runtime>; 2] =
    [current_thread, || Builder::new_multi_thread().worker_threads(1).enable_all().build()];

fn shut_down(runtime: Runtime) {
    block_in_place(|| runtime.shutdown_timeout(Duration::from_secs(5)));
}

/// It may be released and dropped when its runtime is gone; the lease frees the lock.
async fn a_guard_outlives_its_runtime(stage: Stage) -> Outcome {
    let other = stage.client().await?;
    for release in [true, false] {
        for runtime in RUNTIMES {
            let (runtime, name) = (runtime()?, stage.name());
            let (_client, guard) = acquire_on(&runtime, &stage, &name)?;
            shut_down(runtime);
            if release {
                let released = stage.within(1.0, "an answer without a runtime", guard.release()).await?;
                assert_eq!(released?, Release::AlreadyLost(Loss::RuntimeGone));
            } else {
                drop(guard);
            }
            let patience = stage.takeover() + stage.part(2.0);
            let next = other.acquire_within(&name, patience).await?;
            drop(next.ok_or("the lease does not end")?);
        }
    }
    Ok(())
}

/// Whoever holds on another runtime is told at once, by signal and by look.
async fn the_end_of_the_runtime_is_a_loss(stage: Stage) -> Outcome {
    for runtime in RUNTIMES {
        let runtime = runtime()?;
        let (_client, guard) = acquire_on(&runtime, &stage, &stage.name())?;
        let (lost, cancelled) = (guard.lost(), guard.cancellation());
        assert!(guard.is_held() && !cancelled.is_cancelled());
        shut_down(runtime);
        assert!(!guard.is_held(), "held, though nobody renews it any more");
        assert!(guard.remaining().is_zero() && cancelled.is_cancelled());
        assert_eq!(stage.within(1.0, "the word of the loss", lost).await?, Loss::RuntimeGone);
    }
    Ok(())
}

/// The thread that should renew does something else; the first look afterwards is right.
async fn a_blocked_runtime_holds_no_longer_than_its_lease(stage: Stage) -> Outcome {
    let other = stage.patient_client().await?;
    let name = stage.name();
    let runtime = current_thread()?;
    let (_client, guard) = acquire_on(&runtime, &stage, &name)?;
    let until = Moment::now() + guard.remaining();
    // Nobody drives that runtime now.
    let next = stage.within(8.0, "the take-over", other.acquire(&name)).await??;
    assert!(Moment::now() >= until, "taken over within the holder's validity");
    assert!(!guard.is_held() && guard.remaining().is_zero(), "two hold");
    assert!(next.seen());
    drop(guard);
    block_in_place(|| runtime.block_on(stage.pass(0.2)));
    assert!(next.seen(), "the stale guard's release took the next one's lock");
    assert!(other.try_acquire(&name).await?.is_none());
    block_in_place(|| drop(runtime));
    Ok(())
}

/// Renewing, waiting and releasing need no second thread.
async fn a_current_thread_runtime_is_enough(stage: Stage) -> Outcome {
    on_a_thread(move || async move {
        let client = patient(&stage).await?;
        let other = stage.client().await?;
        let name = stage.name();
        let held = client.acquire(&name).await?;
        until(&stage, "two renewals", || client.locks.statistics().renewals >= 2).await?;
        assert!(held.seen());
        let asked = next_request(&other);
        let release = async {
            asked.await;
            held.release().await
        };
        let (next, released) = tokio::join!(other.acquire_within(&name, stage.part(8.0)), release);
        assert_eq!(released?, Release::Released);
        drop(next?.ok_or("it was not handed over")?);
        assert!(client.locks.close(stage.part(2.0)).await.is_empty());
        Ok(())
    })
    .await
}

/// A hundred locks of one client run out together, because its link is silent.
async fn locks_lost_in_the_background_do_no_harm(stage: Stage) -> Outcome {
    let client = stage.client().await?;
    // The first connection, and whatever else is made once.
    drop(client.acquire(&stage.name()).await?);
    let before = tasks();
    let mut guards = Vec::new();
    for _ in 0..100 {
        guards.push(client.acquire(&stage.name()).await?);
    }
    client.link.blackhole(Way::Both);
    for guard in &guards {
        let loss = stage.within(4.0, "the loss", guard.lost()).await?;
        assert_eq!(loss, Loss::Expired);
    }
    assert_eq!((client.locks.statistics().lost, client.locks.statistics().held), (100, 0));
    client.link.heal();
    drop(guards);
    let again = client.acquire_within(&stage.name(), stage.part(8.0)).await?;
    drop(again.ok_or("a free lock is busy")?);
    until(&stage, "the end of a hundred keepers", || tasks() <= before + 2).await
}

/// Threads, descriptors and tasks after a hundred clients are those of before, with or without a close.
async fn connecting_and_closing_leaves_nothing_behind(stage: Stage) -> Outcome {
    let cycle = async |number: u32| {
        let client = stage.client_with(stage.options().with_verb_limit(Duration::from_secs(2))).await?;
        let held = client.acquire(&stage.name()).await?;
        match number % 3 {
            0 => assert!(
                {
                    drop(held);
                    client.locks.close(stage.part(8.0)).await
                }
                .is_empty()
            ),
            1 => _ = held.release().await?,
            _ => drop(held),
        }
        Outcome::Ok(())
    };
    // The first ones make what is made once.
    for number in 0..10 {
        cycle(number).await?;
    }
    let (alive, threads, descriptors) = (tasks(), entries("/proc/self/task")?, entries("/proc/self/fd")?);
    let cycles = stage.rounds(100, 300);
    for number in 0..cycles {
        cycle(number).await?;
    }
    // Other cases of this process have threads and descriptors too; a leak is one in every cycle.
    let some = cycles as usize / 2;
    let flat = || {
        let counted = |path, before| entries(path).is_ok_and(|now| now < before + some);
        tasks() <= alive + 2 && counted("/proc/self/task", threads) && counted("/proc/self/fd", descriptors)
    };
    if until(&stage, "flat", flat).await.is_err() {
        return Err(Failure::new(format!(
            "after {cycles} clients: {alive} tasks became {}, {threads} threads {}, {descriptors} descriptors {}",
            tasks(),
            entries("/proc/self/task")?,
            entries("/proc/self/fd")?,
        )));
    }
    Ok(())
}

fn tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

fn entries(directory: &str) -> io::Result<usize> {
    Ok(fs::read_dir(directory)?.count())
}
