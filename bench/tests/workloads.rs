//! A short run of every workload on real servers: the figures must make sense, and nothing may be left.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{process::ExitCode, time::Duration};

use libtest_mimic::{Arguments, Failed, Trial};
use lock_bench::{
    Plan, Silent,
    record::{Figures, Kind, Measurement, Outcome, Record, Since, Workload},
};

fn main() -> ExitCode {
    if let Some(code) = lock_bench::reexecuted().or_else(lock_conformance::servers::reexecuted) {
        return code;
    }
    let trials = vec![
        #[cfg(feature = "memory")]
        Trial::test("memory_is_measured_within_one_process", memory),
        #[cfg(feature = "file")]
        Trial::test("a_directory_is_measured_and_left_as_it_was", directory),
        #[cfg(feature = "redis")]
        Trial::test("redis_is_measured_and_left_empty", redis),
        #[cfg(feature = "redis")]
        Trial::test("the_replicas_of_redis_are_counted", replicas),
        #[cfg(feature = "redis")]
        Trial::test("one_that_fails_does_not_stop_the_others", failing),
        #[cfg(feature = "etcd")]
        Trial::test("etcd_is_measured_and_left_empty", etcd),
        #[cfg(feature = "zookeeper")]
        Trial::test("zookeeper_is_measured_and_left_as_it_was", zookeeper),
        #[cfg(feature = "mysql")]
        Trial::test("mariadb_is_measured_and_left_without_tables", mariadb),
        #[cfg(all(feature = "memory", feature = "redis"))]
        Trial::test("stopped_early_it_tells_what_it_has_and_tidies_up", stopped),
    ];
    let mut arguments = Arguments::from_args();
    // They would measure each other.
    arguments.test_threads = Some(1);
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn run_until(plan: &Plan, stop: impl Future<Output = ()> + Send) -> Record {
    plan.check().map_err(|failure| failure.to_string()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let record = runtime.block_on(lock_bench::run(plan, &Silent, stop));
    runtime.shutdown_background();
    // What is written is what is read.
    let text = serde_json::to_string(&record).unwrap();
    let read: Record = serde_json::from_str(&text).unwrap();
    assert!(serde_json::to_string(&read).unwrap() == text, "the record changed");
    record
}

fn run(plan: &Plan) -> Record {
    run_until(plan, std::future::pending())
}

fn quick(url: &str) -> Plan {
    let mut plan = Plan::new([url]).quick();
    plan.seconds = 0.2;
    plan.waiting = Duration::from_secs(1);
    plan.holding = Duration::from_secs(2);
    plan.ttl = Duration::from_secs(3);
    plan.peers = true;
    plan.workloads.remove(&Workload::HoldingMany);
    plan
}

#[cfg(feature = "memory")]
fn memory() -> Result<(), Failed> {
    let record = run(&quick("memory:"));
    judge(&record);
    for workload in [Workload::HandoverBetween, Workload::Crash] {
        assert!(matches!(ours(&record, workload).outcome, Outcome::Absent(_)), "{workload:?}");
    }
    Ok(())
}

#[cfg(feature = "file")]
fn directory() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let record = run(&quick(&format!("file://{}", folder.path().display())));
    judge(&record);
    assert!(matches!(ours(&record, Workload::Crash).outcome, Outcome::Measured(_)));
    let left: Vec<_> = std::fs::read_dir(folder.path())?.collect();
    assert!(left.is_empty(), "{left:?}");
    Ok(())
}

#[cfg(feature = "redis")]
fn redis() -> Result<(), Failed> {
    use lock_conformance::Server;

    let server = lock_conformance::servers::Redis::start(&[])?;
    let record = run(&quick(&server.url(None)));
    judge(&record);
    assert!(record.servers[0].version.starts_with(char::is_numeric), "{:?}", record.servers);
    assert_eq!(record.servers[0].durability, "appendonly no");
    assert_eq!(record.servers[0].topology, "one server");
    let names = |kind| {
        let of_kind = |m: &&Measurement| m.contender.kind == kind && m.workload == Workload::Uncontended;
        record.measurements.iter().filter(of_kind).filter(|m| is_measured(m)).count()
    };
    assert_eq!((names(Kind::Raw), names(Kind::Unfenced)), (1, 1));
    for workload in Workload::ALL.iter().filter(|workload| **workload != Workload::HoldingMany) {
        let ours = ours(&record, *workload);
        assert!(is_measured(ours), "{workload:?}: {:?}", ours.outcome);
    }
    if cfg!(target_os = "linux") {
        let Outcome::Measured(Figures::Holding { server_cpu_percent, commands_per_second, .. }) =
            &ours(&record, Workload::Holding).outcome
        else {
            panic!("no figures");
        };
        assert!(server_cpu_percent.is_some());
        // A thousand locks, each renewed every second.
        let rate = commands_per_second.unwrap();
        assert!(rate > 300.0, "{rate}");
    }
    assert_eq!(server.command(&["DBSIZE"])?, "0", "keys are left: {}", server.command(&["KEYS", "*"])?);
    Ok(())
}

/// What differs from server to server: everyone who locks there, the counters, and the tidying up.
#[cfg(any(feature = "etcd", feature = "mysql", feature = "zookeeper"))]
fn short(server: &impl lock_conformance::Server) -> Record {
    let mut plan = quick(&server.url(None));
    plan.rounds = 1;
    plan.workloads =
        [Workload::Uncontended, Workload::Throughput, Workload::HandoverBetween, Workload::Waiting].into();
    let record = run(&plan);
    judge(&record);
    let by_kind = |kind| record.measurements.iter().filter(move |m| m.contender.kind == kind);
    assert!(by_kind(Kind::Ours).all(is_measured));
    assert_eq!(by_kind(Kind::Raw).filter(|m| is_measured(m)).count(), 2);
    assert!(record.servers[0].version.starts_with(char::is_numeric), "{:?}", record.servers);
    record
}

#[cfg(feature = "etcd")]
fn etcd() -> Result<(), Failed> {
    use lock_conformance::Server;

    let server = lock_conformance::servers::Etcd::start()?;
    short(&server);
    let endpoint = server.wire().unwrap().to_string();
    let mut control = std::process::Command::new("etcdctl");
    control.env("ETCDCTL_API", "3").args(["--endpoints", &endpoint, "get", "", "--prefix", "--keys-only"]);
    let keys = control.output()?;
    assert!(keys.status.success() && keys.stdout.is_empty(), "{keys:?}");
    Ok(())
}

#[cfg(feature = "zookeeper")]
fn zookeeper() -> Result<(), Failed> {
    let server = lock_conformance::servers::ZooKeeper::start()?;
    let record = short(&server);
    // Nothing that the server does not tell: this one runs with forceSync=no.
    let durability = &record.servers[0].durability;
    assert!(!durability.contains("log synced") && durability.contains("does not tell"), "{durability}");
    let told = server.four_letters("srvr")?;
    let nodes = told.lines().find_map(|line| line.strip_prefix("Node count: ")).unwrap();
    // The server's own five, and the two of the URL's path, which are there to stay.
    assert_eq!(nodes, "7", "{told}");
    Ok(())
}

#[cfg(feature = "mysql")]
fn mariadb() -> Result<(), Failed> {
    let server = lock_conformance::servers::Mysql::mariadb(&[])?;
    let record = short(&server);
    assert_eq!((&*record.servers[0].backend, &*record.servers[0].topology), ("mariadb", "one server"));
    assert_eq!(server.sql("SHOW TABLES IN locks")?, "");
    Ok(())
}

#[cfg(feature = "redis")]
fn replicas() -> Result<(), Failed> {
    use lock_conformance::{Server, servers::Redis};

    let primary = Redis::start(&[])?;
    let port = primary.wire().unwrap().port().to_string();
    let replica = || Redis::start(&["--replicaof", "127.0.0.1", &port]);
    let mut plan = quick(&primary.url(None));
    // Only what the server is.
    plan.workloads.clear();
    let mut replicas = Vec::new();
    for expected in ["one primary, 1 replica", "one primary, 2 replicas"] {
        replicas.push(replica()?);
        let connected = format!("connected_slaves:{}", replicas.len());
        let begin = std::time::Instant::now();
        while !primary.command(&["INFO", "replication"])?.contains(&connected) {
            assert!(begin.elapsed() < Duration::from_secs(30), "no replica connects");
            std::thread::sleep(Duration::from_millis(50));
        }
        assert_eq!(run(&plan).servers[0].topology, expected);
    }
    Ok(())
}

#[cfg(feature = "redis")]
fn failing() -> Result<(), Failed> {
    use lock_conformance::Server;

    let server = lock_conformance::servers::Redis::start(&[])?;
    let mut plan = quick(&server.url(None));
    plan.urls.insert(0, "redis://me:s3cr3t@127.0.0.1:1".into());
    plan.workloads = [Workload::Uncontended].into();
    // Some of them are only on some machines.
    plan.peers = false;
    let record = run(&plan);
    let of = |index| record.measurements.iter().filter(move |m| m.server == index);
    assert!(of(0).all(|m| matches!(m.outcome, Outcome::Failed(_))) && of(0).count() == 1);
    assert!(of(1).all(is_measured) && of(1).count() == 3);
    assert!(!serde_json::to_string(&record)?.contains("s3cr3t"));
    Ok(())
}

#[cfg(all(feature = "memory", feature = "redis"))]
fn stopped() -> Result<(), Failed> {
    use lock_conformance::Server;

    let server = lock_conformance::servers::Redis::start(&[])?;
    let mut plan = quick(&server.url(None));
    plan.urls.insert(0, "memory:".into());
    plan.workloads = [Workload::Throughput].into();
    plan.peers = false;
    let watched = server.wire().unwrap();
    let record = run_until(&plan, async move {
        // Until the server has keys: it is being measured.
        while keys(watched) == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    assert!(is_measured(ours(&record, Workload::Throughput)));
    assert!(record.measurements.iter().all(|m| m.server == 0), "the second was stopped");
    assert_eq!(server.command(&["DBSIZE"])?, "0", "keys are left: {}", server.command(&["KEYS", "*"])?);
    Ok(())
}

#[cfg(all(feature = "memory", feature = "redis"))]
fn keys(address: std::net::SocketAddr) -> u64 {
    use std::io::{Read, Write};

    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream.write_all(b"DBSIZE\r\nQUIT\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.trim_start_matches(':').split('\r').next().unwrap().parse().unwrap()
}

#[cfg(any(feature = "etcd", feature = "mysql", feature = "redis", feature = "zookeeper"))]
fn is_measured(measurement: &Measurement) -> bool {
    matches!(measurement.outcome, Outcome::Measured(_))
}

fn ours(record: &Record, workload: Workload) -> &Measurement {
    let ours = |m: &&Measurement| m.contender.kind == Kind::Ours && m.workload == workload;
    record.measurements.iter().find(ours).unwrap()
}

/// What must be true of every figure.
fn judge(record: &Record) {
    let settings = &record.settings;
    assert_eq!((settings.waiting, settings.holding, settings.ttl), (1.0, 2.0, 3.0));
    assert_eq!(settings.crash_ttl, 5.0);
    for Measurement { workload, contender, outcome, server } in &record.measurements {
        let who = format!("{workload:?}, {}: {outcome:?}", contender.name);
        let figures = match outcome {
            Outcome::Measured(figures) => figures,
            Outcome::Absent(_) => continue,
            Outcome::Failed(_) => panic!("{who}"),
        };
        match figures {
            Figures::Uncontended { acquire, release, pair, rounds } => {
                assert_eq!(rounds.len(), record.settings.rounds, "{who}");
                assert!(acquire.count == pair.count && release.count == pair.count, "{who}");
                assert!(pair.count > 0 && pair.p50 > 0.0 && pair.p50 <= pair.p99, "{who}");
                // Each pair is the sum of the two, so its extremes lie between the sums of theirs.
                let least = |times: &lock_bench::record::Times| times.points[0].1;
                assert!(pair.max <= (acquire.max + release.max) * 1.01, "{who}");
                assert!(least(pair) >= (least(acquire) + least(release)) * 0.99, "{who}");
            }
            Figures::Throughput { pairs_per_second, cpu_us_per_pair, rounds } => {
                assert_eq!(rounds.len(), record.settings.rounds, "{who}");
                assert!(*pairs_per_second > 10.0 && *cpu_us_per_pair > 0.0, "{who}");
            }
            Figures::Handover {
                handovers_per_second: handovers,
                acquisitions_per_second: all,
                time,
                shares,
                overlaps,
                server_cpu_us,
                ..
            } => {
                assert_eq!(*overlaps, 0, "{who}");
                let has_process = !["file", "memory"].contains(&&*record.servers[*server].backend);
                assert_eq!(server_cpu_us.is_some(), has_process, "{who}");
                assert_eq!(shares.len(), 16, "{who}");
                let seconds = record.settings.seconds * record.settings.rounds as f64;
                assert!((shares.iter().sum::<u64>() as f64 / seconds - all).abs() <= 1e-6 * all, "{who}");
                assert!(handovers <= all && time.count as f64 <= all * seconds + 0.5, "{who}");
                if contender.kind == Kind::Ours {
                    assert!(*handovers > 0.0, "{who}");
                }
            }
            Figures::Waiting { client_cpu_percent, by_kind, commands_per_second, .. } => {
                assert!(*client_cpu_percent >= 0.0, "{who}");
                // MySQL and MariaDB count some statements as two kinds.
                if !["mysql", "mariadb"].contains(&&*record.servers[*server].backend) {
                    assert!(
                        by_kind.values().sum::<f64>() <= commands_per_second.unwrap_or(0.0) * 1.01,
                        "{who}"
                    );
                }
                if contender.kind == Kind::Ours {
                    assert!(commands_per_second.unwrap_or(0.0) < 50.0, "waiting costs: {who}");
                }
            }
            Figures::Holding { locks, lost, bytes_per_lock, worst_lateness_ms, .. } => {
                assert_eq!((*locks, *lost), (1_000, 0), "{who}");
                assert!(*bytes_per_lock > 100.0 && *bytes_per_lock < 1e6, "{who}");
                assert!(*worst_lateness_ms < 2_000.0, "{who}");
            }
            Figures::Crash { takeovers, allowed_ms, allowed_since } => {
                let at_once = *allowed_since == Since::Kill;
                assert_eq!(at_once, record.servers[*server].backend == "file", "{who}");
                assert_eq!(takeovers.len(), record.settings.rounds, "{who}");
                for takeover in takeovers {
                    assert!(takeover.lease_left_ms > 1_000.0, "the kill was not within a lease: {who}");
                    // Whatever else the machine does: less than the lease that is left.
                    let stall = 2_000.0;
                    assert!(takeover.after_ms(*allowed_since) <= allowed_ms + stall, "{who}");
                }
            }
        }
    }
}
