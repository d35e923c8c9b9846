//! `kill -9` of `polylock run` leaves nothing running unguarded.

use std::{
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, getpgid, kill_process};

use crate::support::{Place, Process, Redis, pid_in, run_at, runs, until};

/// A script that has just started something else.
const SCRIPT: &str = "echo $$ > command; sh -c 'echo $$ > child; exec sleep 30'; true";

#[test]
fn command_and_what_it_started_die_at_once_and_the_next_run_starts_at_once() {
    let place = Place::new();
    let mut run = place.run(&["n", "--ttl=30s", "--", "sh", "-c", SCRIPT]);
    let (command, child) = kill_the_run(&mut run, &place);
    let start = Instant::now();
    until("all of it is dead", || !runs(command) && !runs(child));
    assert!(place.run(&["n", "--", "true"]).status().unwrap().success());
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}

#[test]
fn on_redis_command_dies_at_once_and_the_lock_is_kept_for_its_lease() {
    let (place, redis) = (Place::new(), Redis::start());
    let at = |arguments: &[&str]| run_at(&redis.url(), &place.path(""), arguments);
    let (command, child) = kill_the_run(&mut at(&["n", "--ttl=5s", "--", "sh", "-c", SCRIPT]), &place);
    let start = Instant::now();
    until("all of it is dead", || !runs(command) && !runs(child));
    // Long before the lease is over.
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
    assert_eq!(at(&["n", "--no-wait", "--", "true"]).status().unwrap().code(), Some(75));
    assert!(at(&["n", "--", "true"]).status().unwrap().success());
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
}

#[test]
fn a_process_that_left_the_group_keeps_the_lock_until_the_lease_is_over() {
    let place = Place::new();
    let script = "setsid sh -c 'echo $$ > child; exec sleep 30' & echo $$ > command; wait";
    let mut run = place.run(&["n", "--ttl=5s", "--", "sh", "-c", script]);
    let (command, child) = kill_the_run(&mut run, &place);
    let start = Instant::now();
    until("COMMAND is dead", || !runs(command));
    assert_eq!(place.run(&["n", "--no-wait", "--", "true"]).status().unwrap().code(), Some(75));
    assert!(runs(child), "the lock is busy for another reason");
    assert!(place.run(&["n", "--", "true"]).status().unwrap().success());
    // Long before the process ends by itself.
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
    assert!(runs(child), "the lock is free for another reason");
    kill_process(child, Signal::KILL).unwrap();
}

#[test]
fn the_lock_is_free_as_soon_as_the_last_of_the_tree_has_ended() {
    let place = Place::new();
    let script = "setsid sh -c 'echo $$ > child; exec sleep 30' & echo $$ > command; wait";
    let (command, child) = kill_the_run(&mut place.run(&["n", "--ttl=1h", "--", "sh", "-c", script]), &place);
    until("COMMAND is dead", || !runs(command));
    let mut next = Process::start(&mut place.run(&["n", "-v", "--", "true"]));
    next.says("waiting");
    kill_process(child, Signal::KILL).unwrap();
    assert_eq!(next.code(), Some(0));
}

#[test]
fn command_dies_even_if_the_warden_is_gone() {
    let place = Place::new();
    let mut run = Process::start(&mut place.run(&["n", "--", "sh", "-c", SCRIPT]));
    let (command, child) = (pid_in(&place.path("command")), pid_in(&place.path("child")));
    kill_process(getpgid(Some(command)).unwrap(), Signal::KILL).unwrap();
    run.signal(Signal::KILL);
    assert_eq!(run.code(), None);
    until("COMMAND is dead", || !runs(command));
    kill_process(child, Signal::KILL).unwrap();
}

#[test]
fn what_ends_the_group_does_not_end_the_warden() {
    let place = Place::new();
    let script = "trap 'echo TERM >> got' TERM; echo $$ > command; sh -c 'trap \"\" TERM; echo $$ > child; \
                  while :; do sleep 0.1; done'; true";
    let mut run = Process::start(&mut place.run(&["n", "--", "sh", "-c", script]));
    let (command, child) = (pid_in(&place.path("command")), pid_in(&place.path("child")));
    run.signal(Signal::TERM);
    run.signal(Signal::TERM);
    // The warden is the group's leader, and has got it too by the time that it got to `child`.
    let warden = getpgid(Some(child)).unwrap();
    assert!(warden != command && runs(warden));
    run.signal(Signal::KILL);
    until("all of it is dead", || !runs(command) && !runs(child));
    assert_eq!(run.code(), None);
}

/// Starts a run, waits until its command and the command's child are there, and kills it.
fn kill_the_run(run: &mut Command, place: &Place) -> (Pid, Pid) {
    let mut run = Process::start(run);
    let pid = |name: &str| pid_in(Path::new(&place.path(name)));
    let pids = (pid("command"), pid("child"));
    run.signal(Signal::KILL);
    assert_eq!(run.code(), None);
    pids
}
