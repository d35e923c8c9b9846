//! Waits for a lock for so long, then does something else.
//!
//! ```text
//! cargo run --example give_up_after_patience
//! cargo run --example give_up_after_patience --features redis -- redis://127.0.0.1
//! ```

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::{error::Error, time::Duration};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".into());
    let lock = polylock::connect(&url).await?.lock("cache/rebuild")?;

    let rebuilding = lock.acquire().await?;
    let patience = Duration::from_millis(200);

    // `None` says that another holds the lock, as the server's word. A server that cannot be asked is an
    // error, and `?` ends the program here.
    match lock.acquire_within(patience).await? {
        Some(_guard) => unreachable!("the first guard is still held"),
        None => println!("somebody rebuilds the cache already; serving the old one"),
    }

    rebuilding.release().await?;
    let guard = lock.acquire_within(patience).await?.ok_or("still busy")?;
    println!("free again: token {}", guard.fencing_token());
    guard.release().await?;
    Ok(())
}
