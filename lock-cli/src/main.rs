//! `polylock`, the command: runs a command under a distributed lock, shows what locks promise, and measures
//! what they cost.

#[cfg(not(unix))]
compile_error!("the polylock command needs process groups and signals: it is for Unix only");

mod args;
#[cfg(feature = "bench")]
mod bench;
#[cfg(not(feature = "bench"))]
#[path = "bench/absent.rs"]
mod bench;
mod command;
mod exit;
mod job;
mod location;
mod progress;
mod run;
mod server;
mod show;

use std::process::ExitCode;

use args::{Action, Args};
use exit::Failure;

fn main() -> ExitCode {
    if let Some(code) = command::reexecuted(std::env::args_os().skip(1)) {
        return ExitCode::from(code);
    }
    #[cfg(feature = "bench")]
    if let Some(code) = lock_bench::reexecuted() {
        return code;
    }
    let code = match Args::read() {
        Ok(args) => act(args).unwrap_or_else(Failure::report),
        Err(code) => code,
    };
    ExitCode::from(code)
}

fn act(args: Args) -> Result<u8, Failure> {
    tell(args.verbose);
    match args.action {
        Action::Run(run) => run::run(&run, args.verbose),
        Action::Guarantees(what) => show::guarantees(&what),
        Action::Key(what) => show::key(&what),
        Action::Bench(what) => bench::bench(&what, args.verbose),
        Action::Completions { shell } => show::completions(shell),
    }
}

/// Sends the events of the library and of this command to stderr, as far as `-v` asks for them.
fn tell(verbose: u8) {
    use tracing::level_filters::LevelFilter;
    let level = match verbose {
        0 => return,
        1 => LevelFilter::INFO,
        2 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr).with_ansi(false).init();
}
