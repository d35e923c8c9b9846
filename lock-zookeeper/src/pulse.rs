use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use lock_core::Moment;
use tokio::sync::watch;
use zookeeper_client::{Acls, Client, CreateMode, Error};

/// How old a proof may be to be used once more, so that a thousand renewals cost few writes.
const FRESH: Duration = Duration::from_millis(20);

/// The proof that a session lives: a write, which nobody but the leader can acknowledge.
///
/// A server answers reads and pings by itself for a while after it was cut off from the leader, and so does
/// not know that the session has expired. Writes go to a node of the session's own, because one to a claim's
/// node would wake the next in line.
#[derive(Debug)]
pub(crate) struct Pulse {
    path: String,
    acls: Acls<'static>,
    fresh: Duration,
    last: Mutex<Option<Beat>>,
}

/// One write, sent already.
#[derive(Clone, Debug)]
pub(crate) struct Beat {
    since: Moment,
    answer: watch::Receiver<Option<Result<(), Error>>>,
}

impl Pulse {
    pub(crate) fn new(path: String, acls: Acls<'static>, session_timeout: Duration) -> Self {
        Self { path, acls, fresh: FRESH.min(session_timeout / 30), last: Mutex::default() }
    }

    /// Makes the session's node.
    pub(crate) async fn start(&self, client: &Client) -> Result<(), Error> {
        create(client, &self.path, self.acls).await
    }

    /// Sends a write, unless one was sent just now. What is asked of the client after this is answered after
    /// the write.
    ///
    /// To be called in a runtime: the answer is for all who ask, so it is awaited in a task of its own.
    pub(crate) fn beat(&self, client: &Client) -> Beat {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(beat) =
            last.as_ref().filter(|beat| beat.is_good() && Moment::now() < beat.since + self.fresh)
        {
            return beat.clone();
        }
        let since = Moment::now();
        let written = client.set_data(&self.path, b"", None);
        let (sender, answer) = watch::channel(None);
        let (client, path, acls) = (client.clone(), self.path.clone(), self.acls);
        tokio::spawn(async move {
            let written = match written.await {
                // Somebody has deleted it.
                Err(Error::NoNode) => create(&client, &path, acls).await,
                other => other.map(drop),
            };
            sender.send_replace(Some(written));
        });
        last.insert(Beat { since, answer }).clone()
    }
}

impl Beat {
    /// The moment at which the write was sent, once it is acknowledged.
    pub(crate) async fn proven(mut self) -> Result<Moment, Error> {
        let answer = self.answer.wait_for(Option::is_some).await;
        // The task that should tell it has gone with its runtime.
        let answer = answer.ok().and_then(|answer| answer.clone()).unwrap_or(Err(Error::Timeout));
        answer.map(|()| self.since)
    }

    fn is_good(&self) -> bool {
        !matches!(&*self.answer.borrow(), Some(Err(_))) && self.answer.has_changed().is_ok()
    }
}

async fn create(client: &Client, path: &str, acls: Acls<'static>) -> Result<(), Error> {
    match client.create(path, b"", &CreateMode::Ephemeral.with_acls(acls)).await {
        Ok(_) | Err(Error::NodeExists) => Ok(()),
        Err(error) => Err(error),
    }
}
