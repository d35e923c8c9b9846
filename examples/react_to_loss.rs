//! Work that stops in its own way when the lock is lost, before anyone else can hold it.
//!
//! The loss is made by `max_hold`, which ends a lock that a hung task keeps for too long. A network that is
//! down, or a process that was stopped, ends it in the same way.
//!
//! ```text
//! cargo run --example react_to_loss
//! cargo run --example react_to_loss --features redis -- 'redis://127.0.0.1?max_hold=300ms'
//! ```

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::{error::Error, time::Duration};

use polylock::Loss;
use tokio::time::sleep;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:?max_hold=300ms".into());
    let locks = polylock::connect(&url).await?;
    let guard = locks.lock("import")?.acquire().await?;

    let mut imported = 0;
    let loss: Loss = loop {
        tokio::select! {
            // From now until the grace is over nobody else holds the lock: time to put things in order.
            loss = guard.lost() => break loss,
            () = sleep(Duration::from_millis(20)) => {}
        }
        // Never start a step that is longer than what is left of the lease.
        if guard.ensure(Duration::from_millis(10)).is_ok() {
            imported += 1;
        }
    };
    println!("stopped after {imported} rows: {loss}");
    assert!(!guard.is_held());

    // The work has stopped. Dropping the guard says so, and frees the lock without waiting for the lease.
    let lost = guard.fencing_token();
    drop(guard);

    // A lost lock never comes back. It is acquired anew, with a larger token.
    let again = locks.lock("import")?.acquire().await?;
    assert!(again.fencing_token() > lost);
    again.release().await?;
    Ok(())
}
