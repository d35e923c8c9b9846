//! What only looks: guarantees, keys, help and completions.

use std::process::Command;

use crate::support::{Place, Redis, polylock, text};

#[test]
fn guarantees_are_listed_for_every_backend_of_this_build() {
    let shown = stdout(polylock().arg("guarantees"));
    let heads: Vec<_> = shown.lines().next().unwrap().split_whitespace().collect();
    let built = backends_of_this_build();
    assert_eq!(heads, built);
    assert!(shown.lines().any(|line| line.starts_with("killed holder's lock is free    at once")), "{shown}");

    let json = stdout(polylock().args(["guarantees", "--json"]));
    assert_eq!(json.lines().count(), built.len());
    for line in json.lines() {
        let promised: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(promised["exclusion"].is_array() && promised["driver"].is_string(), "{line}");
    }
}

/// The backends that this build was asked for.
fn backends_of_this_build() -> Vec<&'static str> {
    let all = [
        ("file", true),
        ("memory", true),
        ("redis", true),
        ("etcd", cfg!(feature = "etcd")),
        ("zookeeper", cfg!(feature = "zookeeper")),
        ("mysql", cfg!(feature = "mysql")),
    ];
    all.into_iter().filter(|(_, built)| *built).map(|(name, _)| name).collect()
}

#[test]
fn a_servers_guarantees_are_those_of_its_configuration() {
    let redis = Redis::start();
    let shown = stdout(polylock().args(["guarantees", &redis.url()]));
    assert!(shown.lines().next().unwrap().trim() == "redis", "{shown}");
    // Noticed by asking: without it, a notification of a release cannot be promised.
    assert!(shown.contains("are told"), "{shown}");
    let output = polylock().args(["guarantees", "redis://127.0.0.1:1"]).output().unwrap();
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(69), ""));
}

#[test]
fn the_key_of_a_name_is_shown_without_asking_the_server() {
    let shown = stdout(polylock().args(["key", "orders/42", "--url", "redis://127.0.0.1:1"]));
    assert!(shown.contains("orders") && shown.lines().count() == 1, "{shown}");
    let place = Place::new();
    let file = stdout(polylock().args(["key", "orders/42", "--url", &place.url()]));
    assert!(!std::path::Path::new(file.trim()).exists());
    assert!(place.run(&["orders/42", "--", "test", "-e", file.trim()]).status().unwrap().success());
    let bad = polylock().args(["key", "", "--url", "redis://127.0.0.1:1"]).output().unwrap();
    assert_eq!((bad.status.code(), text(&bad.stdout)), (Some(64), ""));
}

#[test]
fn the_help_names_every_exit_code_and_what_no_lock_can_stop() {
    let shown = stdout(polylock().args(["run", "--help"]));
    for line in [
        "  64     usage",
        "  69     ",
        "  70     ",
        "  75     busy",
        "  76     timed out",
        "  79     lost",
        "  126    ",
        "  127    ",
        "  128+n  ",
        "POLYLOCK_FENCING_TOKEN",
        "What no lock can stop",
    ] {
        assert!(shown.contains(line), "{line:?} is missing in\n{shown}");
    }
}

#[test]
fn completions_are_made_for_the_common_shells() {
    for shell in ["bash", "zsh", "fish"] {
        let script = stdout(polylock().args(["completions", shell]));
        assert!(script.contains("polylock") && script.contains("no-wait"), "{shell}");
    }
    let bash = stdout(polylock().args(["completions", "bash"]));
    let place = Place::new();
    std::fs::write(place.path("script"), bash).unwrap();
    assert!(Command::new("bash").arg("-n").arg(place.path("script")).status().unwrap().success());
}

fn stdout(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    text(&output.stdout).into()
}
