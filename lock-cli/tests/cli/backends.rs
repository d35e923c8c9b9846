//! `polylock run` on every server: only the URL differs.

use lock_conformance::{
    Server,
    servers::{Etcd, Mysql, Redis, ZooKeeper},
};

use crate::support::{Place, Process, polylock, run_at, text, until};

#[test]
fn a_run_on_redis_is_as_on_a_directory() {
    runs_as_on_a_directory(&Redis::start(&[]).unwrap());
}

#[test]
fn a_run_on_etcd_is_as_on_a_directory() {
    runs_as_on_a_directory(&Etcd::start().unwrap());
}

#[test]
fn a_run_on_zookeeper_is_as_on_a_directory() {
    runs_as_on_a_directory(&ZooKeeper::start().unwrap());
}

#[test]
fn a_run_on_mariadb_is_as_on_a_directory() {
    runs_as_on_a_directory(&Mysql::mariadb(&[]).unwrap());
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
