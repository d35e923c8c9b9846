//! Signals to `polylock run` reach COMMAND, and no child outlives the lock.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::{Place, Process, hold, pid_in, polylock, runs, until};

/// Writes the name of every signal it gets, and ends on TERM, after a while.
const LISTENER: &str = r#"
for name in INT HUP QUIT USR1 USR2 WINCH CONT; do trap "echo $name >> got" $name; done
trap 'echo TERM >> got; sleep 0.2; echo done >> got; exit 7' TERM
echo $$ > pid
while :; do sleep 0.01; done"#;

#[test]
fn every_signal_is_passed_on_and_the_lock_is_kept_until_command_ends() {
    let place = Place::new();
    let mut run = Process::start(&mut place.run(&["n", "--", "sh", "-c", LISTENER]));
    let command = pid_in(&place.path("pid"));
    for (signal, name) in [
        (Signal::INT, "INT"),
        (Signal::HUP, "HUP"),
        (Signal::QUIT, "QUIT"),
        (Signal::USR1, "USR1"),
        (Signal::USR2, "USR2"),
        (Signal::WINCH, "WINCH"),
        (Signal::CONT, "CONT"),
        (Signal::TERM, "TERM"),
    ] {
        run.signal(signal);
        until(name, || place.read("got").contains(name));
    }
    // It has got TERM and goes on for 200 ms.
    let busy = place.run(&["n", "--no-wait", "--", "true"]).status().unwrap().code();
    assert!(busy == Some(75) || place.read("got").contains("done"), "{busy:?}");
    assert_eq!(run.code(), Some(7));
    assert!(place.read("got").ends_with("done\n") && !runs(command));
    assert_eq!(place.run(&["n", "--no-wait", "--", "true"]).status().unwrap().code(), Some(0));
}

#[test]
fn a_command_that_does_not_catch_a_signal_dies_of_it_with_all_its_children() {
    for (signal, number) in [
        (Signal::TERM, 15),
        (Signal::INT, 2),
        (Signal::HUP, 1),
        (Signal::QUIT, 3),
        (Signal::USR1, 10),
        (Signal::USR2, 12),
    ] {
        let place = Place::new();
        let script = "sh -c 'echo $$ > child; exec sleep 30'; true";
        let mut run = Process::start(&mut place.run(&["n", "--", "sh", "-c", script]));
        let child = pid_in(&place.path("child"));
        run.signal(signal);
        assert_eq!(run.code(), Some(128 + number));
        assert!(!runs(child), "{signal:?}");
    }
}

#[test]
fn what_ignores_the_signal_that_command_died_of_is_killed_within_the_grace() {
    let place = Place::new();
    let script = "sh -c 'trap \"\" TERM; echo $$ > child; while :; do sleep 0.1; done' & \
                  while ! [ -s child ]; do sleep 0.01; done; echo $$ > pid; wait";
    let mut run = Process::start(&mut place.run(&["n", "--grace=500ms", "--", "sh", "-c", script]));
    pid_in(&place.path("pid"));
    let child = pid_in(&place.path("child"));
    run.signal(Signal::TERM);
    assert_eq!(run.code(), Some(143));
    assert!(!runs(child));
}

#[test]
fn what_is_left_in_the_background_by_a_command_that_ended_by_itself_is_left_alone() {
    let place = Place::new();
    let start = Instant::now();
    let script = "sleep 30 & echo $! > child";
    assert!(place.run(&["n", "--", "sh", "-c", script]).status().unwrap().success());
    assert!(start.elapsed() < Duration::from_secs(10));
    let child = pid_in(&place.path("child"));
    assert!(runs(child));
    rustix::process::kill_process(child, Signal::KILL).unwrap();
}

#[test]
fn a_signal_while_waiting_leaves_the_queue_and_ends_the_run() {
    let place = Place::new();
    let mut holder = hold(&place);
    for (signal, number) in [(Signal::TERM, 15), (Signal::INT, 2), (Signal::HUP, 1), (Signal::USR1, 10)] {
        let mut waiting = Process::start(&mut place.run(&["n", "-v", "--", "touch", "ran"]));
        waiting.says("waiting");
        let start = Instant::now();
        waiting.signal(signal);
        assert_eq!(waiting.code(), Some(128 + number));
        assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    }
    std::fs::write(place.path("enough"), "").unwrap();
    assert_eq!(holder.code(), Some(0));
    assert_eq!(place.run(&["n", "--no-wait", "--", "true"]).status().unwrap().code(), Some(0));
    assert!(!place.path("ran").exists());
}

#[test]
fn a_command_that_left_the_group_gets_signals_all_the_same() {
    let place = Place::new();
    let mut run = Process::start(&mut place.run(&["n", "--", "setsid", "sh", "-c", LISTENER]));
    let command = pid_in(&place.path("pid"));
    run.signal(Signal::USR1);
    until("USR1", || place.read("got").contains("USR1"));
    run.signal(Signal::TERM);
    assert_eq!(run.code(), Some(7));
    assert!(!runs(command));
}

#[test]
fn a_signal_that_is_to_be_ignored_stays_ignored_for_command() {
    let place = Place::new();
    let mut nohup = std::process::Command::new("nohup");
    nohup.arg(polylock().get_program()).args(["run", "n", "--", "sh", "-c"]);
    nohup.arg("echo $$ > pid; while ! [ -e enough ]; do sleep 0.01; done; exit 5");
    nohup.env("POLYLOCK_URL", place.url()).current_dir(place.path(""));
    let mut run = Process::start(nohup.stdin(std::process::Stdio::null()));
    let command = pid_in(&place.path("pid"));
    run.signal(Signal::HUP);
    rustix::process::kill_process(command, Signal::HUP).unwrap();
    std::fs::write(place.path("enough"), "").unwrap();
    assert_eq!(run.code(), Some(5));
}
