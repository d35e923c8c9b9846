#![doc = include_str!("../README.md")]

pub mod asking;
mod case;
mod cases;
mod fixture;
mod harness;
mod held;
mod history;
mod holder;
mod link;
pub mod logs;
mod mutants;
mod polled;
mod process;
pub mod relay;
pub mod servers;
mod stage;

use std::{process::ExitCode, sync::Arc};

pub use fixture::{Fixture, Lever, Need, Server};
pub use mutants::{LAW_MUTANTS, LawMutant};
use stage::Stage;

/// Runs the suite against a backend; the whole `main` of its conformance test.
///
/// The test has `harness = false` in its `Cargo.toml`. The program takes libtest's arguments (a filter,
/// `--list`, `--exact`, `--test-threads`, …), so `cargo test` and `cargo nextest` list and choose cases
/// by name. Besides: `--full` or `POLYLOCK_FULL=1` for the full tier, `POLYLOCK_LOG=debug` for the log,
/// `--list-law-mutants` and `POLYLOCK_LAW_MUTANT=<name>` for [mutants](LAW_MUTANTS).
///
/// The program starts itself again for child processes; therefore nothing may run before this.
pub fn main(fixture: impl Fixture) -> ExitCode {
    if let Some(code) = process::become_guarded() {
        return code;
    }
    let fixture: Arc<dyn Fixture> = Arc::new(fixture);
    holder::child::run(&fixture).unwrap_or_else(|| harness::run(fixture))
}
