//! Clocks, distributions, CPU time, memory, and the core that a process runs on.

use std::{fs, time::Duration};

use hdrhistogram::Histogram;
use rustix::{
    process::Pid,
    thread::{CpuSet, sched_getaffinity, sched_setaffinity},
    time::{ClockId, clock_gettime},
};

use crate::{
    failure::{Failure, Result},
    record::Times,
};

/// The monotonic clock, which all processes of a machine share, in nanoseconds.
pub(crate) fn now() -> u64 {
    nanos(clock_gettime(ClockId::Monotonic))
}

/// The CPU time of this process.
pub(crate) fn cpu_time() -> Duration {
    Duration::from_nanos(nanos(clock_gettime(ClockId::ProcessCPUTime)))
}

fn nanos(time: rustix::time::Timespec) -> u64 {
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// The memory of this process that is in RAM, in bytes.
pub(crate) fn resident() -> Result<u64> {
    let text = fs::read_to_string("/proc/self/statm")?;
    let pages = text.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
    let pages = pages.ok_or_else(|| Failure::new("/proc/self/statm cannot be read"))?;
    Ok(pages * rustix::param::page_size() as u64)
}

/// A distribution of times between a tenth of a microsecond and many minutes.
pub(crate) struct Spread(Histogram<u64>);

impl Spread {
    pub(crate) fn new() -> Self {
        // Three digits, which is a legal number of them.
        Self(Histogram::new(3).unwrap_or_else(|_| unreachable!("three digits are few enough")))
    }

    pub(crate) fn add(&mut self, nanos: u64) {
        // It grows as needed.
        let _ = self.0.record(nanos);
    }

    pub(crate) fn join(&mut self, other: &Self) {
        let _ = self.0.add(&other.0);
    }

    /// In microseconds.
    pub(crate) fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    fn quantile(&self, part: f64) -> f64 {
        self.0.value_at_quantile(part) as f64 / 1_000.0
    }

    pub(crate) fn times(&self) -> Times {
        Times {
            count: self.0.len(),
            p50: self.quantile(0.5),
            p90: self.quantile(0.9),
            p99: self.quantile(0.99),
            p999: self.quantile(0.999),
            max: self.0.max() as f64 / 1_000.0,
            points: POINTS.iter().map(|&percent| (percent, self.quantile(percent / 100.0))).collect(),
        }
    }
}

/// The percentiles that a distribution is drawn through.
const POINTS: &[f64] = &[
    0.0, 1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 85.0, 90.0, 92.5, 95.0, 97.0, 98.0, 99.0,
    99.5, 99.8, 99.9, 99.95, 99.99, 100.0,
];

/// Keeps this process and a server's on one core until dropped.
#[derive(Debug)]
pub(crate) struct Pinned(Vec<Process>);

/// A process on one core, and where its threads were before.
#[derive(Debug)]
struct Process {
    id: u32,
    threads: Vec<(Pid, CpuSet)>,
}

impl Pinned {
    /// `None` if one of them may not be moved.
    pub(crate) fn new(servers: &[u32]) -> Option<Self> {
        let own = sched_getaffinity(None).ok()?;
        let core = (0..CpuSet::MAX_CPU).find(|core| own.is_set(*core))?;
        let mut one = CpuSet::new();
        one.set(core);
        let mut moved = Self(Vec::new());
        for id in servers.iter().copied().chain([std::process::id()]) {
            let mut process = Process { id, threads: Vec::new() };
            let refused = threads(id).into_iter().any(|thread| !process.pin(thread, &one));
            moved.0.push(process);
            if refused {
                return None;
            }
        }
        Some(moved)
    }
}

impl Process {
    /// False if it was refused, and not just gone: threads come and go.
    fn pin(&mut self, thread: Pid, core: &CpuSet) -> bool {
        let before = sched_getaffinity(Some(thread)).ok();
        match before.filter(|_| sched_setaffinity(Some(thread), core).is_ok()) {
            Some(before) => {
                self.threads.push((thread, before));
                true
            }
            None => rustix::process::test_kill_process(thread).is_err(),
        }
    }

    /// Where a thread was; for one that was born pinned, where the main thread was.
    fn before(&self, thread: Pid) -> Option<&CpuSet> {
        let main = |thread: Pid| thread.as_raw_nonzero().get().unsigned_abs() == self.id;
        let found = self.threads.iter().find(|(known, _)| *known == thread);
        found.or_else(|| self.threads.iter().find(|(known, _)| main(*known))).map(|(_, mask)| mask)
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        for process in &self.0 {
            // Twice: one may be born meanwhile, of a thread that is still pinned.
            for thread in [threads(process.id), threads(process.id)].concat() {
                if let Some(mask) = process.before(thread) {
                    let _ = sched_setaffinity(Some(thread), mask);
                }
            }
        }
    }
}

fn threads(process: u32) -> Vec<Pid> {
    let Ok(folder) = fs::read_dir(format!("/proc/{process}/task")) else { return Vec::new() };
    let ids = folder.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.filter_map(Pid::from_raw).collect()
}

/// The machine's parts, for the record.
pub(crate) fn machine() -> crate::record::Machine {
    let line = |path: &str, key: &str| -> Option<String> {
        let text = fs::read_to_string(path).ok()?;
        let line =
            text.lines().find_map(|line| line.strip_prefix(key)?.trim_start().strip_prefix([':', '=']));
        line.map(|value| value.trim().trim_matches('"').to_owned())
    };
    let memory = line("/proc/meminfo", "MemTotal");
    let kib = memory.and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let name = line("/etc/os-release", "PRETTY_NAME").unwrap_or_else(|| std::env::consts::OS.into());
    crate::record::Machine {
        cpus: std::thread::available_parallelism().map_or(1, Into::into),
        cpu: line("/proc/cpuinfo", "model name").unwrap_or_else(|| std::env::consts::ARCH.into()),
        memory_bytes: kib * 1024,
        system: format!("{name}, kernel {}", kernel.trim()),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead, BufReader, Write},
        process::{Command, Stdio},
        sync::mpsc,
        thread,
    };

    use super::*;

    #[test]
    fn a_spread_knows_its_percentiles_in_microseconds() {
        let mut spread = Spread::new();
        (1..=1000).for_each(|micros| spread.add(micros * 1_000));
        let times = spread.times();
        assert_eq!(times.count, 1000);
        assert!((times.p50 - 500.0).abs() < 1.0 && (times.p99 - 990.0).abs() < 1.5, "{times:?}");
        assert!((times.max - 1000.0).abs() < 1.5, "{times:?}");
        assert!(times.points.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1), "{times:?}");
    }

    /// Makes [`pinning_ends_for_every_thread`] a child that starts a thread when told to.
    const CHILD: &str = "POLYLOCK_BENCH_PINNED_CHILD";

    #[test]
    fn pinning_ends_for_every_thread() {
        if std::env::var_os(CHILD).is_some() {
            return start_a_thread_when_told();
        }
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture", "measure::tests::pinning_ends_for_every_thread"])
            .env(CHILD, "")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut words = BufReader::new(child.stdout.take().unwrap()).lines().map(|line| line.unwrap());
        let mut number = |word: &str| {
            let said = words.find_map(|line| Some(line.split_once(word)?.1.trim().to_owned()));
            Pid::from_raw(said.unwrap().parse().unwrap()).unwrap()
        };
        let first = number("first thread:");
        let all = sched_getaffinity(None).unwrap();
        let mask = |thread: Pid| sched_getaffinity(Some(thread)).unwrap();

        let pinned = Pinned::new(&[child.id()]).unwrap();
        assert_eq!((mask(first).count(), sched_getaffinity(None).unwrap().count()), (1, 1));
        child.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
        let born = number("born:");
        let (end, ended) = mpsc::channel::<()>();
        let (tell, told) = mpsc::channel();
        let own = thread::spawn(move || {
            tell.send(rustix::thread::gettid()).unwrap();
            let _ = ended.recv();
        });
        let own_born = told.recv().unwrap();
        assert_eq!((mask(born).count(), mask(own_born).count()), (1, 1));

        drop(pinned);
        for thread in [first, born, own_born] {
            assert_eq!(mask(thread), all);
        }
        assert_eq!(sched_getaffinity(None).unwrap(), all);
        drop(end);
        own.join().unwrap();
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success());
    }

    #[allow(clippy::print_stdout, reason = "the parent reads it")]
    fn start_a_thread_when_told() {
        // Behind a line end: the harness has begun a line.
        println!("\nfirst thread: {}", rustix::thread::gettid().as_raw_nonzero());
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).unwrap();
        let (end, ended) = mpsc::channel::<()>();
        let born = thread::spawn(move || {
            println!("\nborn: {}", rustix::thread::gettid().as_raw_nonzero());
            let _ = ended.recv();
        });
        std::io::stdin().read_line(&mut line).unwrap();
        drop(end);
        born.join().unwrap();
        assert_eq!(line, "go\n");
    }

    #[test]
    fn the_machine_is_known() {
        let machine = machine();
        assert!(machine.cpus > 0 && machine.memory_bytes > 1 << 20, "{machine:?}");
        assert!(resident().unwrap() > 1 << 16);
    }
}
