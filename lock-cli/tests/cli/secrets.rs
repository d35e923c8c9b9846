//! A password in the URL is seen by nobody.

use std::fs;

use rustix::process::Pid;

use crate::support::{Place, Process, Redis, pid_in, polylock, run_at, text, until};

const SECRET: &str = "s3cr3t";

#[test]
fn no_argument_and_no_environment_of_commands_holds_the_password() {
    let (place, redis) = (Place::new(), Redis::start_with(Some(SECRET)));
    let url = redis.url().replace("//", &format!("//:{SECRET}@"));
    let script = "env > environment; echo $$ > pid; while ! [ -e enough ]; do sleep 0.01; done";
    let mut run =
        Process::start(&mut run_at(&url, &place.path(""), &["n", "-vvv", "--", "sh", "-c", script]));
    let command = pid_in(&place.path("pid"));
    let warden = rustix::process::getpgid(Some(command)).unwrap();
    for pid in [run.pid(), command, warden] {
        assert!(!of(pid, "cmdline").contains(SECRET));
    }
    for pid in [command, warden] {
        assert!(!of(pid, "environ").contains(SECRET));
    }
    assert!(place.read("environment").contains("POLYLOCK_URL=withheld:\n"));
    fs::write(place.path("enough"), "").unwrap();
    assert_eq!(run.code(), Some(0));
    assert!(!run.errors().contains(SECRET), "{}", run.errors());
}

#[test]
fn a_polylock_inside_command_stops_at_a_withheld_url_and_goes_on_with_a_url_file() {
    let (place, redis) = (Place::new(), Redis::start_with(Some(SECRET)));
    let url = redis.url().replace("//", &format!("//:{SECRET}@"));
    fs::write(place.path("url"), &url).unwrap();
    let inner = format!("{} run inner -- echo whole", env!("CARGO_BIN_EXE_polylock"));

    let output = run_at(&url, &place.path(""), &["outer", "--", "sh", "-c", &inner]).output().unwrap();
    assert_eq!(output.status.code(), Some(64));
    assert!(text(&output.stderr).contains("POLYLOCK_URL_FILE"), "{output:?}");

    let mut outer = polylock();
    outer.args(["run", "outer", "--", "sh", "-c", &inner]).env("POLYLOCK_URL_FILE", place.path("url"));
    assert_eq!(text(&outer.output().unwrap().stdout), "whole\n");
}

#[test]
fn a_url_without_a_secret_is_passed_on() {
    let place = Place::new();
    let output = place.run(&["n", "--", "sh", "-c", "echo $POLYLOCK_URL"]).output().unwrap();
    assert_eq!(text(&output.stdout).trim(), place.url());
}

#[test]
fn no_error_repeats_the_password() {
    let (place, redis) = (Place::new(), Redis::start_with(Some("another")));
    let refused = redis.url().replace("//", &format!("//:{SECRET}@"));
    for (url, expected) in [
        (refused, 69),
        (format!("redis://:{SECRET}@127.0.0.1:1"), 69),
        (format!("redis://:{SECRET}@host:port"), 64),
        (format!("redis://:{SECRET}@127.0.0.1?ttl=soon"), 64),
        (format!("redis://:{SECRET}@127.0.0.1?{SECRET}"), 64),
        (format!("pigeon://:{SECRET}@coop"), 64),
        (format!(":{SECRET}"), 64),
    ] {
        for verbose in ["-n", "-nvvv"] {
            let output = run_at(&url, &place.path(""), &["n", verbose, "--", "true"]).output().unwrap();
            let errors = text(&output.stderr);
            assert_eq!(output.status.code(), Some(expected), "{errors}");
            assert!(!errors.is_empty() && !errors.contains(SECRET), "{errors}");
        }
    }
}

#[test]
fn the_help_does_not_show_the_environment() {
    let mut help = polylock();
    let output = help.args(["run", "--help"]).env("POLYLOCK_URL", SECRET).output().unwrap();
    assert!(output.status.success() && !text(&output.stdout).contains(SECRET));
}

fn of(pid: Pid, what: &str) -> String {
    let path = format!("/proc/{}/{what}", pid.as_raw_nonzero());
    let mut text = String::new();
    until(&path, || {
        text = String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned();
        // Empty for a moment while a process executes another file. The warden's environment is empty.
        !text.is_empty() || what == "environ"
    });
    text
}
