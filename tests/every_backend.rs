//! One application that is told its backend by URL alone, on every one of them: the example `guarded_job`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    path::PathBuf,
    process::{Command, ExitCode},
};

use libtest_mimic::{Arguments, Trial};
use lock_conformance::{
    Server,
    servers::{Directory, Etcd, Mysql, Redis, ZooKeeper, reexecuted},
};

fn main() -> ExitCode {
    if let Some(code) = reexecuted() {
        return code;
    }
    let trial = Trial::test("the_guarded_job_runs_unchanged_on_every_backend", || {
        the_guarded_job_runs_unchanged_on_every_backend();
        Ok(())
    });
    libtest_mimic::run(&Arguments::from_args(), vec![trial]).exit_code()
}

fn the_guarded_job_runs_unchanged_on_every_backend() {
    let servers: Vec<Box<dyn Server>> = vec![
        Box::new(Directory::new("file").unwrap()),
        Box::new(Redis::start(&[]).unwrap()),
        Box::new(Etcd::start().unwrap()),
        Box::new(ZooKeeper::start().unwrap()),
        Box::new(Mysql::mariadb(&[]).unwrap()),
    ];
    let urls = servers.iter().map(|server| server.url(None)).chain(["memory:".into()]);
    for url in urls {
        let output = Command::new(application()).arg(&url).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let scheme = url.split(':').next().unwrap();
        assert!(
            output.status.success() && said == "wrote 3 lines while holding \"nightly-report\"\n",
            "{scheme}: {said}{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

/// Cargo builds examples along with tests, beside their folder.
fn application() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.ancestors().nth(2).unwrap().join("examples/guarded_job")
}
