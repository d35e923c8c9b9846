//! Every workload on every backend, on servers of its own whose data is in memory.
//!
//! `cargo xtask bench` builds this and runs it. Arguments: names of backends to choose some, `--quick`,
//! `--only=WORKLOAD,…`, `--rounds=N`, `--seconds=S`, `--json=FILE`, and `--docs` to write `docs/benchmarks.md` and
//! `docs/benchmarks.html`.

use std::{collections::BTreeSet, error::Error, fs, path::Path, process::ExitCode};

use lock_bench::{Plan, Progress, report};
use lock_conformance::{
    Server,
    servers::{Etcd, Mysql, Redis, ZooKeeper},
};

fn main() -> ExitCode {
    if let Some(code) = lock_bench::reexecuted().or_else(lock_conformance::servers::reexecuted) {
        return code;
    }
    match bench() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

#[allow(clippy::print_stdout)] // The table is what the program is for.
fn bench() -> Result<ExitCode, Box<dyn Error>> {
    // `cargo bench` adds one of its own.
    let arguments: Vec<_> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let value = |key: &str| arguments.iter().find_map(|a| a.strip_prefix(key)?.strip_prefix('='));
    let chosen: BTreeSet<_> =
        arguments.iter().filter(|argument| !argument.starts_with('-')).map(String::as_str).collect();
    let wanted = |name: &str| chosen.is_empty() || chosen.contains(name);

    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() { tempfile::tempdir_in(memory)? } else { tempfile::tempdir()? };
    let mut urls = Vec::new();
    if wanted("memory") {
        urls.push("memory:".to_owned());
    }
    if wanted("file") {
        urls.push(format!("file://{}", folder.path().display()));
    }
    let mut servers: Vec<Box<dyn Server>> = Vec::new();
    if wanted("redis") {
        servers.push(Box::new(Redis::start(&[])?));
    }
    if wanted("etcd") {
        servers.push(Box::new(Etcd::start()?));
    }
    if wanted("zookeeper") {
        servers.push(Box::new(ZooKeeper::start()?));
    }
    if wanted("mariadb") {
        servers.push(Box::new(Mysql::mariadb(&[])?));
    }
    if wanted("mysql") {
        match Mysql::find_oracle() {
            Some(program) => servers.push(Box::new(Mysql::oracle(program, &[])?)),
            None => eprintln!("bench: mysql is left out: POLYLOCK_MYSQLD names no mysqld"),
        }
    }
    urls.extend(servers.iter().map(|server| server.url(None)));

    let mut plan = Plan::new(urls);
    if arguments.iter().any(|argument| argument == "--quick") {
        plan = plan.quick();
    }
    if let Some(only) = value("--only") {
        let named = |name: &str| serde_json::from_value(name.into());
        plan.workloads = only.split(',').map(named).collect::<Result<_, _>>()?;
    }
    plan.rounds = value("--rounds").map_or(Ok(plan.rounds), str::parse)?;
    plan.seconds = value("--seconds").map_or(Ok(plan.seconds), str::parse)?;
    plan.peers = true;
    plan.note = memory.is_dir().then(|| "data in memory (tmpfs)".to_owned());
    plan.commit = std::env::var("POLYLOCK_COMMIT").ok();
    plan.check().map_err(|failure| failure.to_string())?;

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut record = runtime.block_on(lock_bench::run(&plan, &Lines, std::future::pending()));
    runtime.shutdown_background();
    for server in &mut record.servers {
        if server.backend == "zookeeper" {
            // So it was started; it does not tell.
            server.durability.push_str("; forceSync=no");
        }
    }
    print!("{}", report::table(&record));
    if let Some(path) = value("--json") {
        fs::write(path, serde_json::to_string_pretty(&record)?)?;
    }
    // These servers are gone by now.
    for server in &mut record.servers {
        let scheme = server.url.split(':').next().unwrap_or_default();
        server.url = format!("{scheme}:");
    }
    if arguments.iter().any(|argument| argument == "--docs") {
        let docs = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs"));
        fs::write(docs.join("benchmarks.md"), report::markdown(&record))?;
        fs::write(docs.join("benchmarks.html"), report::html(&record))?;
    }
    let broken = lock_bench::broken(&record);
    broken.iter().for_each(|what| eprintln!("bench: {what}"));
    Ok(if broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A line on stderr for each workload.
struct Lines;

impl Progress for Lines {
    fn begin(&self, what: &str, _steps: u64) {
        eprintln!("bench: {what}");
    }

    fn step(&self, _what: &str) {}
}
