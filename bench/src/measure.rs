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
pub(crate) struct Pinned(Vec<(Pid, CpuSet)>);

impl Pinned {
    /// `None` if one of them may not be moved.
    pub(crate) fn new(servers: &[u32]) -> Option<Self> {
        let own = sched_getaffinity(None).ok()?;
        let core = (0..CpuSet::MAX_CPU).find(|core| own.is_set(*core))?;
        let mut one = CpuSet::new();
        one.set(core);
        let mut moved = Self(Vec::new());
        for process in servers.iter().copied().chain([std::process::id()]) {
            for thread in threads(process) {
                let before = sched_getaffinity(Some(thread)).ok();
                let Some(before) = before.filter(|_| sched_setaffinity(Some(thread), &one).is_ok()) else {
                    // Threads come and go; one that is still there was refused.
                    if rustix::process::test_kill_process(thread).is_ok() {
                        return None;
                    }
                    continue;
                };
                moved.0.push((thread, before));
            }
        }
        Some(moved)
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // Of those that were born pinned, this process's have the mask of its main thread.
        let own = self
            .0
            .iter()
            .find(|(thread, _)| thread.as_raw_nonzero().get().unsigned_abs() == std::process::id());
        if let Some((_, mask)) = own {
            for thread in threads(std::process::id()) {
                let _ = sched_setaffinity(Some(thread), mask);
            }
        }
        for (thread, mask) in &self.0 {
            let _ = sched_setaffinity(Some(*thread), mask);
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

    #[test]
    fn pinning_ends_with_its_value() {
        let before = sched_getaffinity(None).unwrap();
        let pinned = Pinned::new(&[]).unwrap();
        assert_eq!(sched_getaffinity(None).unwrap().count(), 1);
        drop(pinned);
        assert_eq!(sched_getaffinity(None).unwrap(), before);
    }

    #[test]
    fn the_machine_is_known() {
        let machine = machine();
        assert!(machine.cpus > 0 && machine.memory_bytes > 1 << 20, "{machine:?}");
        assert!(resident().unwrap() > 1 << 16);
    }
}
