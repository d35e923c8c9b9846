//! The project's own tasks. `cargo xtask test` is what CI runs.

mod bench;
mod docs;
mod mutants;
mod servers;
mod step;
mod test;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The project's own tasks.
#[derive(Parser)]
#[command(bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Install what is missing, then run everything that CI runs.
    Test,
    /// Install the servers that the tests start, and start none.
    Servers,
    /// Break the code on purpose, fault by fault, and check that the case named for each fault fails.
    Mutants {
        /// Only those whose line in the table has this text.
        filter: Option<String>,
    },
    /// Measure every backend on servers of its own, beside the bare drivers and other libraries, and write
    /// docs/benchmarks.md and docs/benchmarks.html.
    ///
    /// Nothing else should run on the machine; it takes about an hour.
    Bench {
        /// A short run, to see that all works: its figures are printed, and no document is written
        #[arg(long)]
        quick: bool,
        /// Write the record as JSON, too
        #[arg(long)]
        json: Option<std::path::PathBuf>,
        /// How often each contender has its turn
        #[arg(long)]
        rounds: Option<u16>,
        /// How long a turn is, in seconds
        #[arg(long)]
        seconds: Option<f64>,
        /// These backends only (memory, file, redis, etcd, zookeeper, mariadb, mysql); no document is written
        backends: Vec<String>,
    },
    /// Write the documents that are generated from the code.
    Docs,
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().task {
        Task::Test => test::run_all(),
        Task::Servers => servers::install().map(drop),
        Task::Mutants { filter } => mutants::run(filter.as_deref().unwrap_or("")),
        Task::Bench { quick, json, rounds, seconds, backends } => {
            bench::run(quick, json, rounds, seconds, &backends)
        }
        Task::Docs => docs::write(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("\nxtask: {failure}");
            ExitCode::FAILURE
        }
    }
}
