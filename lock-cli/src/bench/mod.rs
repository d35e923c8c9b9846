//! `polylock bench URL…`: what each backend costs, on one's own servers.

mod arguments;
mod output;
mod progress;

use std::time::Duration;

pub(crate) use arguments::Bench;
use lock_bench::{Plan, Progress, Silent};
use output::Outputs;
use progress::Bar;

use crate::{
    command::Signals,
    exit::{self, Failure},
};

pub(crate) fn bench(args: &Bench, verbose: u8) -> Result<u8, Failure> {
    let plan = args.plan()?;
    plan.check().map_err(|failure| Failure::new(exit::BENCH_USAGE, failure.to_string()))?;
    // Before anything is measured: a run takes minutes.
    let outputs = Outputs::open(args)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::internal("no runtime could be made", &error))?;
    let result = runtime.block_on(measure(&plan, verbose, outputs));
    // A driver that hangs must not hold up the exit.
    runtime.shutdown_timeout(Duration::from_millis(500));
    result
}

async fn measure(plan: &Plan, verbose: u8, outputs: Outputs) -> Result<u8, Failure> {
    let mut signals =
        Signals::ending().map_err(|error| Failure::internal("signals cannot be caught", &error))?;
    // A bar and messages would write over each other.
    let progress: Box<dyn Progress> = if verbose == 0 { Box::new(Bar::new()) } else { Box::new(Silent) };
    let mut stopped = None;
    let stop = async { stopped = Some(signals.next().await) };
    let record = lock_bench::run(plan, &*progress, stop).await;
    drop(progress);
    outputs.write(&record)?;
    let broken = lock_bench::broken(&record);
    broken.iter().for_each(|what| exit::complain(what));
    let code = if broken.is_empty() { 0 } else { exit::BENCH_FAILURE };
    Ok(stopped.map_or(code, |signal| exit::signalled(signal.as_raw())))
}
