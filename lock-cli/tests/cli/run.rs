//! What COMMAND gets, and what becomes of its exit code.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    time::{Duration, Instant},
};

use crate::support::{Place, Process, code, free_port, hold, polylock, run_at, text};

#[test]
fn command_gets_its_arguments_byte_by_byte_and_stdout_is_its_alone() {
    let place = Place::new();
    let command = ["printf", "%s|", "-v", "--help", "a b", "", "--", "\n"];
    let output = place.run(&[&["n", "-vvv", "--"], &command[..]].concat()).output().unwrap();
    assert_eq!(text(&output.stdout), "-v|--help|a b||--|\n|");
    assert_eq!(code(&output), 0);
    assert!(text(&output.stderr).contains("acquired"));
}

#[test]
fn nothing_is_said_without_being_asked() {
    let output = Place::new().run(&["n", "--", "true"]).output().unwrap();
    assert_eq!((text(&output.stdout), text(&output.stderr)), ("", ""));
}

#[test]
fn command_finds_the_name_and_a_growing_token_in_its_environment() {
    let place = Place::new();
    let mut last = 0;
    for _ in 0..3 {
        let script = "echo $POLYLOCK_NAME $POLYLOCK_FENCING_TOKEN";
        let output = place.run(&["orders/42", "--", "sh", "-c", script]).output().unwrap();
        let (name, token) = text(&output.stdout).trim().split_once(' ').unwrap();
        assert_eq!(name, "orders/42");
        let token = token.parse::<u64>().unwrap();
        assert!(token > last, "{token} after {last}");
        last = token;
    }
}

#[test]
fn the_exit_code_of_command_is_kept() {
    let place = Place::new();
    for (script, expected) in [("exit 0", 0), ("exit 1", 1), ("exit 42", 42), ("kill -9 $$", 137)] {
        let status = place.run(&["n", "--", "sh", "-c", script]).status().unwrap();
        assert_eq!(status.code(), Some(expected), "{script}");
    }
}

#[test]
fn a_command_that_cannot_be_run_has_the_codes_that_shells_give() {
    let place = Place::new();
    fs::write(place.path("plain"), "").unwrap();
    fs::set_permissions(place.path("plain"), fs::Permissions::from_mode(0o644)).unwrap();
    for (command, expected) in [("./absent", 127), ("absent-from-the-path", 127), ("./plain", 126)] {
        let output = place.run(&["n", "--", command]).output().unwrap();
        assert_eq!(code(&output), expected, "{command}");
        assert!(text(&output.stderr).starts_with(&format!("polylock: {command}: ")), "{output:?}");
    }
}

#[test]
fn a_busy_lock_is_told_by_code_alone() {
    let place = Place::new();
    let _holder = hold(&place);
    let start = Instant::now();
    for (arguments, expected) in [
        (&["n", "--no-wait"][..], 75),
        (&["n", "-n", "-E", "3"], 3),
        (&["n", "--wait=200ms"], 76),
        // Long enough for a spinner, which is for terminals only.
        (&["n", "--wait=0.8", "-E", "0"], 0),
    ] {
        let output = place.run(&[arguments, &["--", "touch", "ran"]].concat()).output().unwrap();
        assert_eq!(code(&output), expected, "{arguments:?}");
        assert_eq!((text(&output.stdout), text(&output.stderr)), ("", ""));
    }
    assert!(start.elapsed() >= Duration::from_secs(1));
    assert!(!place.path("ran").exists());
}

#[test]
fn a_waiting_run_follows_when_the_holder_ends() {
    let place = Place::new();
    let mut holder = hold(&place);
    let mut next = Process::start(&mut place.run(&["n", "-v", "--", "touch", "second"]));
    next.says("waiting");
    assert!(next.is_running() && !place.path("second").exists());
    fs::write(place.path("enough"), "").unwrap();
    assert_eq!((holder.code(), next.code()), (Some(0), Some(0)));
    assert!(place.path("second").exists());
}

#[test]
fn what_cannot_be_used_is_a_usage_error_that_says_why() {
    let place = Place::new();
    let long = "x".repeat(256);
    for (arguments, why) in [
        (&["n"][..], "COMMAND"),
        (&["n", "true"], "true"),
        (&["", "--", "true"], "name is empty"),
        (&[&long, "--", "true"], "255"),
        (&["n", "--ttl", "soon", "--", "true"], "soon"),
        (&["n", "--ttl", "1ms", "--", "true"], "50ms"),
        (&["n", "--wait", "--no-wait", "--", "true"], "--no-wait"),
        (&["n", "--url", "carrier-pigeon://coop", "--", "true"], "file:, memory:, redis:, rediss:"),
        (&["n", "--url", "memory:", "--", "true"], "excludes no other process"),
        (&["n", "--url-file", "absent", "--", "true"], "absent"),
    ] {
        let output = place.run(arguments).output().unwrap();
        assert_eq!(code(&output), 64, "{output:?}");
        assert_eq!(text(&output.stdout), "");
        assert!(text(&output.stderr).contains(why), "{output:?}");
    }
}

#[test]
fn a_backend_that_is_down_is_told_apart_and_the_text_says_where_and_what_to_do() {
    let place = Place::new();
    let port = free_port();
    let url = format!("redis://me:s3cr3t@127.0.0.1:{port}");
    for waiting in ["--wait", "--no-wait", "--wait=1s"] {
        let mut run = run_at(&url, &place.path(""), &["n", waiting, "--", "touch", "ran"]);
        let output = run.output().unwrap();
        assert_eq!(code(&output), 69, "{output:?}");
        assert_eq!(text(&output.stdout), "");
        let errors = text(&output.stderr);
        assert!(errors.contains(&format!("127.0.0.1:{port}")) && errors.contains("--url"), "{errors}");
        assert!(!errors.contains("s3cr3t"), "{errors}");
    }
    assert!(!place.path("ran").exists());
}

#[test]
fn the_default_directory_is_the_users_state() {
    let place = Place::new();
    let run = |variable: &str, folder: &str| {
        let mut command = polylock();
        command.env("HOME", place.path("home")).env(variable, place.path(folder));
        assert!(command.args(["run", "n", "--", "true"]).status().unwrap().success());
    };
    fs::create_dir(place.path("home")).unwrap();
    run("XDG_STATE_HOME", "state");
    assert!(place.path("state/polylock").is_dir());
    run("HOME", "home");
    let kept = place.path("home/.local/state/polylock");
    assert_eq!(fs::metadata(kept).unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn a_url_file_names_the_server_and_options_of_the_url_hold() {
    let place = Place::new();
    fs::write(place.path("url"), format!("{}?max_hold=200ms&grace=1s\n", place.url())).unwrap();
    let mut by_flag = polylock();
    by_flag.args(["run", "n", "--url-file"]).arg(place.path("url")).args(["--", "sleep", "30"]);
    assert_eq!(by_flag.status().unwrap().code(), Some(79));
    let mut by_variable = polylock();
    by_variable.args(["run", "n", "--", "sleep", "30"]).env("POLYLOCK_URL_FILE", place.path("url"));
    assert_eq!(by_variable.status().unwrap().code(), Some(79));
}
