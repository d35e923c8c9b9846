//! Many runs at once on one counter file: no update is lost, also when runs are killed in between.

use std::{
    fs::{File, OpenOptions},
    path::Path,
    process::{Child, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Place, Redis, run_at};

/// Looks for another that runs, reads, waits, writes.
///
/// One that is dying does not count (the flag 4 in its `stat`): it runs no more of its code, but the kernel may
/// take a while to close all its files, the liveness descriptor among the first.
const INCREMENT: &str = r#"
: > running.$$
for other in running.*; do
    [ $other = running.$$ ] && continue
    { read -r line < /proc/${other#running.}/stat; } 2> /dev/null || continue
    set -- ${line##*) }
    [ "$1" = Z ] || [ $((${7:-4} & 4)) != 0 ] || echo $other >> overlaps
done
date +%s%N >> starts; echo $PPID > holder.new; mv holder.new holder
n=$(cat counter); sleep 0.005; echo $((n + 1)) > counter.new; mv counter.new counter"#;

#[test]
fn two_hundred_increments_on_a_directory_lose_no_update() {
    let place = Place::new();
    Storm::new(&place, &place.url(), "30s", 200).run(&[]);
}

#[test]
fn two_hundred_increments_on_redis_lose_no_update() {
    let (place, redis) = (Place::new(), Redis::start());
    Storm::new(&place, &redis.url(), "30s", 200).run(&[]);
}

#[test]
fn killed_runs_lose_no_update_of_others_on_a_directory() {
    let place = Place::new();
    let storm = Storm::new(&place, &place.url(), "10s", 100);
    storm.run(&[Victim::Any, Victim::Holder].repeat(10));
}

#[test]
fn killed_runs_lose_no_update_of_others_on_redis() {
    let (place, redis) = (Place::new(), Redis::start());
    // Every killed holder costs the others a lease.
    let storm = Storm::new(&place, &redis.url(), "3s", 100);
    storm.run(&[Victim::Any, Victim::Any, Victim::Any, Victim::Holder].repeat(3));
}

/// Which run is killed.
#[derive(Clone, Copy, Debug)]
enum Victim {
    Any,
    Holder,
}

struct Storm<'a> {
    place: &'a Place,
    runs: Vec<Child>,
    started: Instant,
    lease: Duration,
    /// Storms of several test processes at once would measure nothing but the machine.
    _alone: File,
}

impl<'a> Storm<'a> {
    fn new(place: &'a Place, url: &str, ttl: &str, runs: usize) -> Self {
        let alone = append(&Path::new(env!("CARGO_TARGET_TMPDIR")).join("storm"));
        alone.lock().unwrap();
        std::fs::write(place.path("counter"), "0\n").unwrap();
        let started = Instant::now();
        let runs = (0..runs).map(|_| start(url, ttl, place)).collect();
        Self { place, runs, started, lease: lease(ttl), _alone: alone }
    }

    fn run(mut self, victims: &[Victim]) {
        let total = self.runs.len();
        let killed = self.kill(victims);
        let codes: Vec<_> = self.runs.iter_mut().map(|run| run.wait().unwrap().code()).collect();
        eprintln!(
            "{total} runs, {killed} kills, {:?}; the longest pause: {:?}",
            self.started.elapsed(),
            self.longest_pause()
        );

        let read = |name| self.place.read(name);
        assert_eq!(read("overlaps"), "", "two commands ran at the same time");
        let dead = codes.iter().filter(|code| code.is_none()).count();
        let completed = codes.iter().filter(|code| **code == Some(0)).count();
        assert_eq!((dead, completed), (killed, total - killed), "{codes:?}\n{}", read("errors"));
        // A run may have been killed after its increment.
        let counter: usize = read("counter").trim().parse().unwrap();
        assert!((completed..=total).contains(&counter), "{counter} of {completed}");
        assert!(killed > 0 || counter == total);
        let pause = self.longest_pause();
        // The next holder may be a victim too, before its command has started.
        let longest = if killed == 0 { self.lease + Duration::from_secs(1) } else { self.lease * 2 };
        assert!(pause < longest, "nobody ran for {pause:?}");
    }

    /// Kills a run now and then.
    fn kill(&mut self, victims: &[Victim]) -> usize {
        let seed = seed();
        eprintln!("seed {seed}: POLYLOCK_SEED={seed} repeats the choice of victims");
        let mut random = Random(seed);
        let mut killed = Vec::new();
        for victim in victims {
            thread::sleep(Duration::from_millis(20 + random.below(60)));
            let alive =
                self.runs.iter_mut().filter_map(|run| run.try_wait().unwrap().is_none().then_some(run));
            let pids: Vec<_> =
                alive.map(|run| Pid::from_child(run)).filter(|pid| !killed.contains(pid)).collect();
            let pid = match victim {
                Victim::Holder => self.place.read("holder").trim().parse().ok().and_then(Pid::from_raw),
                Victim::Any if pids.is_empty() => None,
                Victim::Any => Some(pids[usize::try_from(random.below(pids.len() as u64)).unwrap()]),
            };
            // A holder that has ended meanwhile is none of them any more.
            if let Some(pid) = pid.filter(|pid| pids.contains(pid)) {
                kill_process(pid, Signal::KILL).unwrap();
                killed.push(pid);
            }
        }
        // One that ended by itself in that very moment was not killed.
        self.runs
            .iter_mut()
            .filter(|run| killed.contains(&Pid::from_child(run)))
            .filter_map(|run| run.wait().unwrap().code().is_none().then_some(()))
            .count()
    }

    /// The longest time between the starts of two commands, which followed each other.
    fn longest_pause(&self) -> Duration {
        let mut starts: Vec<u64> =
            self.place.read("starts").lines().map(|nanoseconds| nanoseconds.parse().unwrap()).collect();
        starts.sort_unstable();
        let pauses = starts.windows(2).map(|pair| pair[1] - pair[0]);
        Duration::from_nanos(pauses.max().unwrap())
    }
}

impl Drop for Storm<'_> {
    fn drop(&mut self) {
        for run in &mut self.runs {
            let _ = run.kill();
            let _ = run.wait();
        }
    }
}

fn start(url: &str, ttl: &str, place: &Place) -> Child {
    // So many at once take their time on a small machine.
    let mut url = format!("{url}?verb_limit=2s");
    if url.starts_with("redis:") {
        url += "&connect_timeout=30s";
    }
    let arguments = ["counter", "--wait=10m", "--ttl", ttl, "--grace=500ms", "--", "sh", "-c", INCREMENT];
    let mut run = run_at(&url, &place.path(""), &arguments);
    run.stdout(Stdio::null()).stderr(append(&place.path("errors"))).spawn().unwrap()
}

/// The longest that nobody may run while others wait.
fn lease(ttl: &str) -> Duration {
    Duration::from_secs(ttl.trim_end_matches('s').parse().unwrap()) + Duration::from_millis(500)
}

fn append(path: &Path) -> File {
    OpenOptions::new().create(true).append(true).open(path).unwrap()
}

fn seed() -> u64 {
    let given = std::env::var("POLYLOCK_SEED").ok().and_then(|seed| seed.parse().ok());
    given.unwrap_or_else(|| {
        let since = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
        u64::from(since.subsec_nanos()) | 1
    })
}

/// xorshift64
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}
