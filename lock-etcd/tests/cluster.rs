//! Three members against the suite: of the etcd that is installed, and of the one that `POLYLOCK_ETCD` names.
//!
//! Three servers for every case would take longer to start than the cases take. So there is one test for each
//! group of cases: it runs this program once more, as the suite, and the group's cases share a cluster.

mod fixture;

use std::{
    collections::BTreeSet,
    env,
    process::{Command, ExitCode, Output},
};

use fixture::EtcdFixture;
use libtest_mimic::{Arguments, Failed, Trial};

/// Says that this process is the suite, on this program.
const SUITE: &str = "POLYLOCK_ETCD_SUITE";
/// Where an etcd is that is not on the path: 3.5 or later, beside an installed 3.4.
const OTHER: &str = "POLYLOCK_ETCD";

/// So many cases share a cluster at a time: most of their time they wait. Those about names do not, they take
/// hundreds of locks each.
fn at_a_time(cases: &str) -> &'static str {
    if cases == "names::" { "--test-threads=1" } else { "--test-threads=2" }
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    // The suite's own children inherit the variable.
    if let Ok(program) = env::var(SUITE) {
        // It lives as long as the process.
        let program = Some(&*program.leak());
        return lock_conformance::main(EtcdFixture { name: "etcd-cluster", cluster_of: program });
    }
    match trials() {
        Ok(trials) => libtest_mimic::run(&Arguments::from_args(), trials).exit_code(),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn trials() -> Result<Vec<Trial>, Failure> {
    let mut programs = vec!["etcd".to_owned()];
    programs.extend(env::var(OTHER));
    let (mut trials, mut newest) = (Vec::new(), (0, 0));
    let groups = groups()?;
    for program in programs {
        let (major, minor) = version(&program)?;
        newest = newest.max((major, minor));
        for group in &groups {
            let (program, cases) = (program.clone(), format!("{group}::"));
            let name = format!("{group}_on_three_members_of_{major}_{minor}");
            trials.push(Trial::test(name, move || run(&program, &cases).map_err(Failed::from)));
        }
    }
    if newest < (3, 5) {
        eprintln!(
            "\n*** NOT TESTED: etcd 3.5. The one that is installed is {}.{}. ***\n\
             *** Set {OTHER} to the path of a newer one, such as Debian 13's.  ***\n",
            newest.0, newest.1
        );
        let missing = "etcd_3_5_is_missing_and_not_tested";
        trials.push(Trial::test(missing, || Err("set POLYLOCK_ETCD".into())).with_ignored_flag(true));
    }
    Ok(trials)
}

/// From `etcd Version: 3.4.23`.
fn version(program: &str) -> Result<(u32, u32), Failure> {
    let hint = |error| format!("{program} cannot be started: {error}; install etcd-server");
    let told = Command::new(program).arg("--version").output().map_err(hint)?;
    let told = String::from_utf8(told.stdout)?;
    let mut numbers = told.lines().next().and_then(|line| line.rsplit(' ').next()).unwrap_or("").split('.');
    let mut number = || numbers.next().unwrap_or("").parse::<u32>();
    Ok((number()?, number()?))
}

/// The groups that have a case for this fixture.
fn groups() -> Result<BTreeSet<String>, Failure> {
    let listed = suite("etcd", &["--list"])?;
    let listed = String::from_utf8(listed.stdout)?;
    Ok(listed.lines().filter_map(|line| Some(line.split_once("::")?.0.to_owned())).collect())
}

fn run(program: &str, cases: &str) -> Result<(), Failure> {
    let output = suite(program, &[cases, at_a_time(cases)])?;
    let (told, noted) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.success() { Ok(()) } else { Err(format!("{told}\n{noted}").into()) }
}

fn suite(program: &str, arguments: &[&str]) -> Result<Output, Failure> {
    Ok(Command::new(env::current_exe()?).env(SUITE, program).args(arguments).output()?)
}
