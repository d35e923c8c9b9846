//! `cargo xtask bench`: the figures in the documentation.

use std::{path::PathBuf, process::Command};

use crate::{
    servers,
    step::{self, Result, cargo},
    workspace,
};

pub(crate) fn run(
    quick: bool,
    json: Option<PathBuf>,
    rounds: Option<u16>,
    seconds: Option<f64>,
    backends: &[String],
) -> Result {
    let places = servers::install()?;
    let mut bench = cargo("bench -p lock-bench --features all,peers --bench suite --");
    bench.args(backends).envs(places);
    if let Some(json) = json {
        // The benchmark runs in another folder.
        bench.arg(format!("--json={}", std::path::absolute(json)?.display()));
    }
    if let Some(rounds) = rounds {
        bench.arg(format!("--rounds={rounds}"));
    }
    if let Some(seconds) = seconds {
        bench.arg(format!("--seconds={seconds}"));
    }
    if let Some(commit) = commit() {
        bench.env("POLYLOCK_COMMIT", commit);
    }
    if quick {
        bench.arg("--quick");
    } else if backends.is_empty() {
        bench.arg("--docs");
    }
    step::run("benchmark", &mut bench)
}

/// The commit, and whether the files differ from it.
fn commit() -> Option<String> {
    let mut git = Command::new("git");
    git.args(["describe", "--always", "--dirty", "--abbrev=12"]).current_dir(workspace::root());
    let output = git.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
