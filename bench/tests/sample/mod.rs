//! A record as a run could have made it, of figures that nobody measured. For tests only.

use std::collections::BTreeMap;

use lock_bench::record::{
    Contender, Figures, Kind, Machine, Measurement, Outcome, Record, Server, Settings, Since, Takeover,
    Times, Workload,
};

/// Text that every report has to bear: markup, a terminal's commands, a turned reading direction.
pub(crate) const HOSTILE: &str = "</svg><script>alert('1')</script> | `x` *b* [a](javascript:b) \u{1b}[31mred\u{202e}\0 & \"quoted\"\nnext line";

/// Every backend, every workload, every outcome.
pub(crate) fn record() -> Record {
    let servers = vec![
        server("redis", "7.0.15", "redis://127.0.0.1:6379", "appendonly no"),
        server("redis", "7.0.15", "redis://127.0.0.1:6380", "appendonly yes, appendfsync always"),
        server("etcd", "3.5.21", "etcd://127.0.0.1:2379", "fsync before each answer"),
        server("zookeeper", "3.8.0-1, built on 2022-02-25", "zookeeper://127.0.0.1:2181", "forceSync=yes"),
        server(
            "mysql",
            "10.11.19-MariaDB",
            "mariadb://127.0.0.1:3306/locks",
            "innodb_flush_log_at_trx_commit=1",
        ),
        server("file", "ext4", "file:///var/lib/locks", "the page cache"),
    ];
    let mut record = Record {
        made: "2001-02-03T04:05:06Z".to_owned(),
        commit: Some("0123456789ab".to_owned()),
        machine: Machine {
            cpus: 2,
            cpu: "Sample CPU <2.50 GHz>".to_owned(),
            memory_bytes: 8 << 30,
            system: "Linux 6.1.0, sample".to_owned(),
        },
        settings: Settings {
            rounds: 5,
            seconds: 2.0,
            pinned: true,
            waiting: 10.0,
            holding: 60.0,
            ttl: 30.0,
            crash_ttl: 5.0,
        },
        servers,
        measurements: Vec::new(),
    };
    // A pair of the bare driver in microseconds, and what the log costs each write.
    for (server, pair) in [44.0, 1180.0, 1450.0, 1720.0, 1010.0, 61.0].into_iter().enumerate() {
        backend(&mut record, server, pair);
    }
    peers(&mut record);
    words(&mut record);
    record
}

/// Nothing measured, nothing known.
pub(crate) fn empty() -> Record {
    Record { commit: None, servers: Vec::new(), measurements: Vec::new(), ..record() }
}

/// The sample's etcd alone, without peers.
pub(crate) fn one_backend() -> Record {
    let mut record = record();
    record.servers = vec![record.servers[2].clone()];
    record.measurements.retain(|it| it.server == 2 && matches!(it.outcome, Outcome::Measured(_)));
    for measurement in &mut record.measurements {
        measurement.server = 0;
    }
    record
}

pub(crate) fn contender(kind: Kind, name: &str) -> Contender {
    let (language, version) = match kind {
        Kind::Ours | Kind::Raw | Kind::Unfenced => ("Rust", "0.1.0"),
        Kind::Peer => ("Python", "4.0.1"),
    };
    Contender { name: name.to_owned(), kind, language: language.to_owned(), version: version.to_owned() }
}

pub(crate) fn times(p50: f64) -> Times {
    let at = |percentile: f64| p50 * (0.62 + 0.38 * (100.0 / (100.0 - percentile)).log2().powf(1.15));
    let points = [0.0, 5.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 98.0, 99.0, 99.5, 99.9, 99.95, 99.99];
    Times {
        count: 20_000,
        p50,
        p90: at(90.0),
        p99: at(99.0),
        p999: at(99.9),
        max: at(99.99) * 1.6,
        points: points.into_iter().map(|it| (it, at(it))).chain([(100.0, at(99.99) * 1.6)]).collect(),
    }
}

fn server(backend: &str, version: &str, url: &str, durability: &str) -> Server {
    Server {
        backend: backend.to_owned(),
        url: url.to_owned(),
        version: version.to_owned(),
        durability: durability.to_owned(),
        topology: "one server".to_owned(),
    }
}

/// Five rounds about a figure, in another order for each figure.
fn rounds(whole: f64) -> Vec<f64> {
    let mut parts = [0.98, 1.0, 1.02, 0.99, 1.03];
    parts.rotate_left(whole.to_bits() as usize % 5);
    parts.map(|part| part * whole).to_vec()
}

fn uncontended(pair: f64) -> Figures {
    Figures::Uncontended {
        acquire: times(pair * 0.52),
        release: times(pair * 0.47),
        pair: times(pair),
        rounds: rounds(pair),
    }
}

fn throughput(pairs_per_second: f64, cpu_us_per_pair: f64) -> Figures {
    Figures::Throughput { pairs_per_second, cpu_us_per_pair, rounds: rounds(pairs_per_second) }
}

fn handover(rate: f64, time: f64, barging: u64) -> Figures {
    Figures::Handover {
        handovers_per_second: rate,
        acquisitions_per_second: rate * (1.0 + barging as f64 / 9.0),
        time: times(time),
        shares: (0..16).map(|waiter| 1000 + (waiter * 37 % 16) * barging * 25).collect(),
        longest_wait_ms: time * 16.0 / 1e3 * (1.0 + barging as f64),
        server_cpu_us: Some(time * 0.4),
        overlaps: 0,
        rounds: rounds(rate),
    }
}

fn crash(over: f64, allowed_ms: f64, allowed_since: Since) -> Figures {
    let takeovers =
        [4012.0, 3377.0, 2951.0, 4630.0, 3808.0].into_iter().enumerate().map(|(index, lease_left_ms)| {
            let took_ms = (lease_left_ms + over * (0.6 + 0.15 * index as f64)).max(3.0);
            Takeover { lease_left_ms, took_ms }
        });
    Figures::Crash { takeovers: takeovers.collect(), allowed_ms, allowed_since }
}

fn backend(record: &mut Record, server: usize, pair: f64) {
    let quick = pair < 100.0;
    let ours = contender(Kind::Ours, "polylock");
    let raw = contender(Kind::Raw, "raw");
    let unfenced = contender(Kind::Unfenced, "raw, unfenced");
    let mut add = |workload, contender: &Contender, figures| {
        let outcome = Outcome::Measured(figures);
        record.measurements.push(Measurement { server, workload, contender: contender.clone(), outcome });
    };
    // Out of order on purpose: the reports put them right.
    add(Workload::Uncontended, &unfenced, uncontended(pair * 0.91));
    add(Workload::Uncontended, &raw, uncontended(pair));
    add(Workload::Uncontended, &ours, uncontended(pair * 1.08 + 1.5));
    let rate = 1e6 / pair * if quick { 3.1 } else { 9.0 };
    add(Workload::Throughput, &raw, throughput(rate, 9.4));
    add(Workload::Throughput, &ours, throughput(rate * 0.86, 12.7));
    add(Workload::Throughput, &unfenced, throughput(rate * 1.1, 8.8));
    let barging = if server == 4 { 3 } else { 0 };
    for (workload, part) in [(Workload::HandoverWithin, 1.0), (Workload::HandoverBetween, 1.9)] {
        add(workload, &ours, handover(1e6 / (pair * 1.2 * part), pair * 1.2 * part, barging));
        add(workload, &raw, handover(1e6 / (pair * 1.5 * part), pair * 1.5 * part, 1));
    }
    let by_kind = BTreeMap::from([("get".to_owned(), 2.0), ("select".to_owned(), 18.5)]);
    let polls = server >= 4;
    add(
        Workload::Waiting,
        &ours,
        Figures::Waiting {
            commands_per_second: (server != 5).then_some(if polls { 20.5 } else { 0.0 }),
            by_kind: if server == 4 { by_kind } else { BTreeMap::new() },
            server_cpu_percent: (server != 5).then_some(if polls { 1.4 } else { 0.05 }),
            client_cpu_percent: 0.3 + server as f64 / 5.0,
        },
    );
    for (workload, locks) in [(Workload::Holding, 1000), (Workload::HoldingMany, 10_000)] {
        let load = locks as f64 / 1000.0;
        let figures = Figures::Holding {
            locks,
            commands_per_second: (server != 5).then_some(200.0 * load),
            server_cpu_percent: (server != 5).then_some(0.9 * load + pair / 1000.0),
            client_cpu_percent: 1.1 * load,
            bytes_per_lock: 1840.0 - load,
            worst_lateness_ms: 3.0 + load * 2.0,
            lost: 0,
        };
        add(workload, &ours, figures);
    }
    let over = [9.0, 11.0, 780.0, 1900.0, 140.0, -9000.0][server];
    let allowed = [110.0, 110.0, 1100.0, 4100.0, 300.0, 100.0][server];
    let since = if server == 5 { Since::Kill } else { Since::Lease };
    add(Workload::Crash, &ours, crash(over, allowed, since));
}

fn peers(record: &mut Record) {
    let mut add = |server, name, workload, figures| {
        let outcome = Outcome::Measured(figures);
        let contender = contender(Kind::Peer, name);
        record.measurements.push(Measurement { server, workload, contender, outcome });
    };
    for (name, slower) in
        [("redis-py", 2.5), ("python-redis-lock", 3.2), ("distributed-lock-redis-async", 1.14)]
    {
        add(0, name, Workload::Uncontended, uncontended(44.0 * slower));
        add(0, name, Workload::Throughput, throughput(70_000.0 / (slower * 8.0), 30.0 * slower));
        add(0, name, Workload::HandoverWithin, handover(75.0 * slower, 450.0 * slower, 9));
    }
    add(0, "redis-py", Workload::Crash, crash(95.0, 100.0, Since::Lease));
    add(3, "kazoo", Workload::Uncontended, uncontended(3900.0));
    let waiting = Figures::Waiting {
        commands_per_second: Some(4463.0),
        by_kind: BTreeMap::from([("evalsha".to_owned(), 1487.6), ("set".to_owned(), 1487.6)]),
        server_cpu_percent: Some(8.6),
        client_cpu_percent: 22.6,
    };
    add(0, "redis-py", Workload::Waiting, waiting);
    let Figures::Handover { time, shares, rounds, .. } = handover(5000.0, 90.0, 2) else { return };
    let unsafe_figures = Figures::Handover {
        handovers_per_second: 5000.0,
        acquisitions_per_second: 5100.0,
        time,
        shares,
        longest_wait_ms: 12.0,
        server_cpu_us: None,
        overlaps: 3,
        rounds,
    };
    add(0, "redis-py", Workload::HandoverBetween, unsafe_figures);
}

/// Failures and absences, and text that nobody has looked at.
fn words(record: &mut Record) {
    let mut add = |server, kind, name, workload, outcome| {
        let contender = contender(kind, name);
        record.measurements.push(Measurement { server, workload, contender, outcome });
    };
    add(0, Kind::Peer, "<b>hostile|peer</b>", Workload::Uncontended, Outcome::Failed(HOSTILE.to_owned()));
    let absent = || Outcome::Absent("etcd3gw does not wait for a lock that is held".to_owned());
    add(2, Kind::Peer, "etcd3gw", Workload::HandoverWithin, absent());
    add(2, Kind::Peer, "etcd3gw", Workload::HandoverBetween, absent());
    add(
        3,
        Kind::Peer,
        "zookeeper-async",
        Workload::Throughput,
        Outcome::Failed("panicked: no node".to_owned()),
    );
    let other = [(5, Workload::HoldingMany), (3, Workload::HandoverBetween)];
    record
        .measurements
        .retain(|it| it.contender.kind != Kind::Ours || !other.contains(&(it.server, it.workload)));
    let mut add = |server, workload, outcome| {
        let contender = contender(Kind::Ours, "polylock");
        record.measurements.push(Measurement { server, workload, contender, outcome });
    };
    add(5, Workload::HoldingMany, Outcome::Absent("more names than open files are allowed".to_owned()));
    add(3, Workload::HandoverBetween, Outcome::Failed("the session expired after 30 s".to_owned()));
}
