//! A lost lock ends COMMAND before anyone else can hold it.

use std::{
    fs,
    process::Stdio,
    time::{Duration, Instant},
};

use rustix::process::{Signal, kill_process};

use crate::support::{Place, Process, Redis, pid_in, polylock, run_at, runs, text, until};

const TTL: Duration = Duration::from_millis(1200);
/// For a quarter of it COMMAND is dead before the lock can pass on: longer than a busy machine stalls.
const GRACE: Duration = Duration::from_secs(8);
const TERMS: [&str; 3] = ["n", "--ttl=1200ms", "--grace=8s"];

/// Notes TERM and goes on; its child too.
const STUBBORN: &str = "trap 'echo TERM >> got' TERM; echo $$ > pid; \
                        sh -c 'trap \"\" TERM; echo $$ > child; while :; do sleep 0.05; done' & \
                        while :; do sleep 0.05; done";

#[test]
fn a_lock_whose_key_is_gone_ends_command_within_the_grace() {
    let (place, redis) = (Place::new(), Redis::start());
    let mut run = start(&redis, &place, STUBBORN);
    let (command, child) = (pid_in(&place.path("pid")), pid_in(&place.path("child")));
    let start = Instant::now();
    redis.ask("FLUSHALL");
    assert_eq!(run.code(), Some(79));
    // A renewal finds out, a third of the ttl later at the latest.
    assert!(start.elapsed() < TTL / 3 + GRACE, "{:?}", start.elapsed());
    assert!(!runs(command) && !runs(child));
    assert_eq!(place.read("got"), "TERM\n");
    run.says("was lost: the server no longer knows the claim");
}

#[test]
fn a_server_that_hangs_past_the_lease_ends_command_before_the_lock_can_pass_on() {
    let (place, redis) = (Place::new(), Redis::start());
    let mut run = start(&redis, &place, STUBBORN);
    let (command, child) = (pid_in(&place.path("pid")), pid_in(&place.path("child")));
    let key = polylock().args(["key", "n", "--url", &redis.url()]).output().unwrap().stdout;
    // Its answer, the time that is left, is negative for a key that is not there.
    let look = || redis.ask(&format!("PTTL {}", text(&key).trim()));
    let left = look();
    assert!(!left.starts_with(":-"), "{left}");
    let start = Instant::now();
    kill_process(redis.pid(), Signal::STOP).unwrap();
    until("the group is dead", || !runs(command) && !runs(child));
    let dead = start.elapsed();
    kill_process(redis.pid(), Signal::CONT).unwrap();
    // The server's own word. The run may have released the lock before this look: then it had not expired.
    look();
    let statistics = redis.ask("INFO stats");
    assert!(statistics.contains("\nexpired_keys:0\r"), "the lock was free after {dead:?}: {statistics}");
    assert_eq!(place.read("got"), "TERM\n");
    assert!(dead > TTL / 2, "the last renewal was a third of the ttl ago at the most: {dead:?}");
    assert_eq!(run.code(), Some(79));
}

#[test]
fn a_command_that_obeys_has_its_time_to_end_and_the_code_still_says_lost() {
    let (place, redis) = (Place::new(), Redis::start());
    let script =
        "trap 'sleep 0.1; echo tidied > got; exit 0' TERM; echo $$ > pid; while :; do sleep 0.01; done";
    let mut run = start(&redis, &place, script);
    pid_in(&place.path("pid"));
    redis.ask("FLUSHALL");
    assert_eq!(run.code(), Some(79));
    assert_eq!(place.read("got"), "tidied\n");
}

#[test]
fn a_run_that_was_stopped_past_its_lease_kills_command_when_it_goes_on() {
    let place = Place::new();
    let mut run = Process::start(&mut place.run(&[&TERMS[..], &["--", "sh", "-c", STUBBORN]].concat()));
    let (command, child) = (pid_in(&place.path("pid")), pid_in(&place.path("child")));
    run.signal(Signal::STOP);
    assert!(place.run(&["n", "--", "true"]).status().unwrap().success(), "taken after the lease");
    run.signal(Signal::CONT);
    let start = Instant::now();
    assert_eq!(run.code(), Some(79));
    assert!(start.elapsed() < GRACE / 2, "no time is left for TERM: {:?}", start.elapsed());
    assert!(!runs(command) && !runs(child));
    assert_eq!(place.read("got"), "");
}

#[test]
fn a_loss_found_at_the_release_takes_the_place_of_success_only() {
    let (place, redis) = (Place::new(), Redis::start());
    for (own, expected) in [("0", 79), ("3", 3)] {
        let script = format!("touch held; while ! [ -e gone ]; do sleep 0.01; done; exit {own}");
        let arguments = ["n", "--ttl=1h", "--", "sh", "-c", &script];
        let mut run = Process::start(&mut run_at(&redis.url(), &place.path(""), &arguments));
        until("the lock is held", || place.path("held").exists());
        redis.ask("FLUSHALL");
        fs::write(place.path("gone"), "").unwrap();
        assert_eq!(run.code(), Some(expected));
        run.says("was lost");
        fs::remove_file(place.path("gone")).unwrap();
        fs::remove_file(place.path("held")).unwrap();
    }
}

#[test]
fn a_lock_is_held_through_many_leases_while_its_server_answers() {
    let (place, redis) = (Place::new(), Redis::start());
    let runs = [redis.url(), place.url()].map(|url| {
        let mut run = polylock();
        run.args(["run", "n", "--ttl=3s", "--url", &url, "--", "sh", "-c", "sleep 7; echo whole"]);
        run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    });
    for run in runs {
        let output = run.wait_with_output().unwrap();
        assert_eq!((text(&output.stdout), text(&output.stderr)), ("whole\n", ""));
        assert!(output.status.success());
    }
}

#[test]
fn the_longest_hold_ends_command_too() {
    let place = Place::new();
    let output = place.run(&["n", "--max-hold=200ms", "--", "sleep", "30"]).output().unwrap();
    assert_eq!(output.status.code(), Some(79));
    assert!(text(&output.stderr).contains("longest time allowed"), "{output:?}");
}

fn start(redis: &Redis, place: &Place, script: &str) -> Process {
    let arguments = [&TERMS[..], &["--", "sh", "-c", script]].concat();
    Process::start(&mut run_at(&redis.url(), &place.path(""), &arguments))
}
