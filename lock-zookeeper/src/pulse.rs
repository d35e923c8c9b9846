use std::time::Duration;

use lock_core::Moment;
use tokio::sync::Mutex;
use zookeeper_client::{Acls, Client, CreateMode, Error};

/// The proof that a session lives: a write, which nobody but the leader can acknowledge.
///
/// A server answers reads and pings by itself for a while after it was cut off from the leader, and so does
/// not know that the session has expired. Writes go to a node of the session's own, because one to a claim's
/// node would wake the next in line.
#[derive(Debug)]
pub(crate) struct Pulse {
    path: String,
    /// How old a proof may be to be used once more, so that a thousand renewals cost few writes.
    fresh: Duration,
    last: Mutex<Option<Moment>>,
}

impl Pulse {
    pub(crate) fn new(path: String, fresh: Duration) -> Self {
        Self { path, fresh, last: Mutex::default() }
    }

    /// The moment at which a write was sent that has been acknowledged by now.
    ///
    /// All who ask meanwhile get the same one.
    pub(crate) async fn proof(&self, client: &Client, acls: Acls<'static>) -> Result<Moment, Error> {
        let mut last = self.last.lock().await;
        if let Some(since) = last.filter(|since| Moment::now() < *since + self.fresh) {
            return Ok(since);
        }
        let since = self.write(client, acls).await?;
        *last = Some(since);
        Ok(since)
    }

    async fn write(&self, client: &Client, acls: Acls<'static>) -> Result<Moment, Error> {
        loop {
            let since = Moment::now();
            match client.set_data(&self.path, b"", None).await {
                Ok(_) => return Ok(since),
                Err(Error::NoNode) => {}
                Err(error) => return Err(error),
            }
            let since = Moment::now();
            match client.create(&self.path, b"", &CreateMode::Ephemeral.with_acls(acls)).await {
                Ok(_) => return Ok(since),
                Err(Error::NodeExists) => {}
                Err(error) => return Err(error),
            }
        }
    }
}
