//! `polylock run` on every server: only the URL differs.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "cli/support.rs"]
#[allow(dead_code, reason = "a part of it is for the other tests")]
mod support;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};
use lock_conformance::{
    Server,
    servers::{Etcd, Mysql, Redis, ZooKeeper, reexecuted},
};
use support::{Place, Process, polylock, run_at, text, until};

fn main() -> ExitCode {
    if let Some(code) = reexecuted() {
        return code;
    }
    let trials = vec![
        trial("redis", || runs_as_on_a_directory(&Redis::start(&[]).unwrap())),
        trial("etcd", || runs_as_on_a_directory(&Etcd::start().unwrap())),
        trial("zookeeper", || runs_as_on_a_directory(&ZooKeeper::start().unwrap())),
        trial("mariadb", || runs_as_on_a_directory(&Mysql::mariadb(&[]).unwrap())),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn trial(server: &str, run: fn()) -> Trial {
    Trial::test(format!("a_run_on_{server}_is_as_on_a_directory"), move || {
        run();
        Ok(())
    })
}

/// Holds against a second run, passes its code on, gives growing tokens, and names its key.
fn runs_as_on_a_directory(server: &dyn Server) {
    let (place, url) = (Place::new(), server.url(None));
    let run = |arguments: &[&str]| {
        run_at(&url, place.path("").as_path(), &[&["n", "--ttl=4s"], arguments].concat())
    };
    let script = "echo $POLYLOCK_FENCING_TOKEN > first; while ! [ -e enough ]; do sleep 0.01; done; exit 3";
    let mut holder = Process::start(&mut run(&["--", "sh", "-c", script]));
    until("the lock is held", || !place.read("first").is_empty());
    assert_eq!(run(&["--no-wait", "--", "true"]).status().unwrap().code(), Some(75));

    let mut next =
        Process::start(&mut run(&["--wait", "--", "sh", "-c", "echo $POLYLOCK_FENCING_TOKEN > second"]));
    std::fs::write(place.path("enough"), "").unwrap();
    assert_eq!((holder.code(), next.code()), (Some(3), Some(0)), "{}{}", holder.errors(), next.errors());
    let token = |file: &str| place.read(file).trim().parse::<u64>().unwrap();
    assert!(token("first") < token("second"));

    let key = polylock().args(["key", "n", "--url", &url]).output().unwrap();
    assert!(key.status.success() && text(&key.stdout).contains('n'), "{key:?}");
}
