//! A job that only one process at a time may run.
//!
//! ```text
//! cargo run --example guarded_job                                            # a directory of its own
//! cargo run --example guarded_job --features redis -- redis://127.0.0.1
//! ```

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::{error::Error, time::Duration};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args()
        .nth(1)
        .unwrap_or_else(|| format!("file://{}", std::env::temp_dir().join("polylock-guarded-job").display()));
    let locks = polylock::connect(&url).await?;
    let guard = locks.lock("nightly-report")?.acquire().await?;

    // The work is dropped at its next await if the lock is lost.
    let lines = guard.run(write_report()).await?;
    println!("wrote {lines} lines while holding {:?}", guard.name());

    // Dropping the guard would release it too, in the background. This waits for the server's word.
    guard.release().await?;
    Ok(())
}

async fn write_report() -> usize {
    let lines = ["date", "orders", "total"];
    for _ in lines {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    lines.len()
}
