//! The shared suite against an ensemble of three.
//!
//! Three servers for every case would take longer to start than the cases take. So there is one test for each
//! group of cases: it runs this program once more, as the suite, and the group's cases share an ensemble.

mod fixture;

use std::{
    collections::BTreeSet,
    env,
    process::{Command, ExitCode, Output},
    time::Duration,
};

use fixture::ZooKeeperFixture;
use libtest_mimic::{Arguments, Failed, Trial};
use lock_conformance::servers::ZooKeeper;

/// Says that this process is the suite.
const SUITE: &str = "POLYLOCK_ZOOKEEPER_ENSEMBLE";

/// The group whose cases have ensembles of their own, which must not take each other's time to start.
const ALONE: &str = "reconnect::";

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    // The suite's own children inherit the variable.
    if env::var_os(SUITE).is_some() {
        return lock_conformance::main(ZooKeeperFixture {
            name: "zookeeper-ensemble",
            start: ZooKeeper::ensemble,
            // Three servers start on two cores within a few of them.
            ttl: Duration::from_millis(1500),
        });
    }
    let groups = match groups() {
        Ok(groups) => groups,
        Err(error) => {
            eprintln!("the suite does not tell its cases: {error}");
            return ExitCode::FAILURE;
        }
    };
    let trials = groups.into_iter().map(|group| {
        let cases = format!("{group}::");
        Trial::test(format!("{group}_with_three_members"), move || run(&cases).map_err(Failed::from))
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}

/// The groups that have a case for this fixture.
fn groups() -> Result<BTreeSet<String>, Failure> {
    let listed = suite(&["--list"])?;
    let listed = String::from_utf8(listed.stdout)?;
    Ok(listed.lines().filter_map(|line| Some(line.split_once("::")?.0.to_owned())).collect())
}

fn run(cases: &str) -> Result<(), Failure> {
    // Most of their time they wait.
    let at_a_time = if cases == ALONE { 1 } else { 3 };
    let output = suite(&[cases, &format!("--test-threads={at_a_time}")])?;
    let (told, noted) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.success() { Ok(()) } else { Err(format!("{told}\n{noted}").into()) }
}

fn suite(arguments: &[&str]) -> Result<Output, Failure> {
    Ok(Command::new(env::current_exe()?).env(SUITE, "1").args(arguments).output()?)
}
