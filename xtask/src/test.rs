//! `cargo xtask test`: what CI runs, in the order of how soon a mistake shows.

use std::process::Command;

use crate::{
    servers,
    step::{self, Result, cargo, run, succeeds},
    workspace,
};

pub(crate) fn run_all() -> Result {
    let places = servers::install()?;
    run("format", &mut cargo("fmt --all --check"))?;
    lint()?;
    let mut doc = cargo("doc --workspace --all-features --no-deps");
    run("documentation", doc.env("RUSTDOCFLAGS", "-D warnings"))?;
    if succeeds(&mut cargo("nextest --version")) {
        run("tests", cargo("nextest run --workspace --all-features").envs(places))?;
    } else {
        run("tests", cargo("test --workspace --all-features --lib --bins --tests").envs(places))?;
    }
    run("a build without backends", &mut cargo("test -p polylock --no-default-features --lib"))?;
    run("code in the documentation", &mut cargo("test --workspace --all-features --doc"))?;
    examples()?;
    first_command()?;
    if succeeds(&mut cargo("deny --version")) {
        run("licences and sources", &mut cargo("deny --offline check licenses bans sources"))?;
    }
    eprintln!("\n=== all passed");
    Ok(())
}

/// Every feature of the facade alone, none, and all.
fn lint() -> Result {
    let clippy = |title: &str, choice: &str| {
        run(&format!("clippy, {title}"), &mut cargo(&format!("clippy {choice} --all-targets -- -D warnings")))
    };
    clippy("all features", "--workspace --all-features")?;
    clippy("no feature", "-p polylock --no-default-features")?;
    for feature in workspace::features()? {
        clippy(&feature, &format!("-p polylock --no-default-features --features {feature}"))?;
    }
    Ok(())
}

/// Runs them all, with the backend each has as its default.
fn examples() -> Result {
    run("examples", &mut cargo("build --workspace --all-features --examples"))?;
    let folder = workspace::output()?.join("examples");
    for name in workspace::examples()? {
        run(&format!("example {name}"), &mut Command::new(folder.join(&name)))?;
    }
    Ok(())
}

/// The first command that the README shows, as it stands there, on a machine without protoc; and what it says
/// about a backend that it was built without.
fn first_command() -> Result {
    let state = workspace::output()?.join("xtask-state");
    let polylock = |arguments: &str| {
        let mut command = cargo(&format!("run -p lock-cli -- {arguments}"));
        command.env("XDG_STATE_HOME", &state).env("PROTOC", "/no/protoc").env_remove("POLYLOCK_URL");
        command
    };
    let mut hello = polylock("run hello -- echo hi");
    let output = hello.output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() || said.trim() != "hi" {
        let text = String::from_utf8_lossy(&output.stderr);
        return Err(format!("the README's first command said {said:?}, not hi:\n{text}").into());
    }
    eprintln!("\n=== {}\n    {}", step::shown(&hello), said.trim());
    let output = polylock("run hello --url etcd://127.0.0.1 -- echo hi").output()?;
    let text = String::from_utf8_lossy(&output.stderr);
    let needed = ["cargo install lock-cli --features etcd", "protoc"];
    if output.status.success() || !needed.iter().all(|words| text.contains(words)) {
        return Err(format!("it does not say how to get etcd:\n{text}").into());
    }
    Ok(())
}
