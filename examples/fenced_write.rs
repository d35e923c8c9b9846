//! A database write that a late holder cannot spoil: the store refuses a fencing token that is smaller
//! than the largest it has seen.
//!
//! ```text
//! cargo run --example fenced_write
//! cargo run --example fenced_write --features redis -- redis://127.0.0.1
//! ```

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::{error::Error, sync::Mutex};

use polylock::FencingToken;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".into());
    let lock = polylock::connect(&url).await?.lock("orders/42")?;
    let store = Store::default();

    let first = lock.acquire().await?;
    let late = first.fencing_token();
    first.release().await?;

    let second = lock.acquire().await?;
    assert!(store.write(second.fencing_token(), "charged"));
    println!("token {} wrote {:?}", second.fencing_token(), store.read());

    // What the first holder sent before it was paused arrives only now. No lock can stop it; the store can.
    assert!(!store.write(late, "cancelled"));
    assert_eq!(store.read(), "charged");
    println!("token {late} came too late and was refused");

    second.release().await?;
    Ok(())
}

/// One row of a database, and the largest token it has seen.
///
/// In SQL the whole of it is one column more and one condition, in the statement that writes:
///
/// ```sql
/// ALTER TABLE orders ADD COLUMN fence BIGINT NOT NULL DEFAULT 0;
/// UPDATE orders SET state = :state, fence = :token WHERE id = 42 AND fence <= :token;
/// -- no row changed: somebody with a larger token was here; give up
/// ```
#[derive(Default)]
struct Store(Mutex<(u64, String)>);

impl Store {
    /// Whether the write was taken.
    fn write(&self, token: FencingToken, state: &str) -> bool {
        let mut row = self.0.lock().expect("no writer panics");
        // Equal is right: one holder may write more than once.
        if row.0 > token.value() {
            return false;
        }
        *row = (token.value(), state.into());
        true
    }

    fn read(&self) -> String {
        self.0.lock().expect("no writer panics").1.clone()
    }
}
