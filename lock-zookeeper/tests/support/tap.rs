use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use lock_conformance::relay::Relay;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::tcp::{OwnedReadHalf, OwnedWriteHalf},
};

/// A relay to a server that counts the requests of its clients by kind.
pub struct Tap {
    pub relay: Relay,
    requests: Arc<Mutex<BTreeMap<i32, usize>>>,
}

/// The number of a request that only keeps a connection.
const PING: i32 = 11;

impl Tap {
    /// Lives as long as the test's runtime.
    pub async fn on(server: String) -> Self {
        let requests = Arc::<Mutex<BTreeMap<i32, usize>>>::default();
        let counted = requests.clone();
        let relay =
            Relay::through(server, move |client, server| count(client, server, counted.clone())).await;
        Self { relay, requests }
    }

    /// Forgets what was counted so far.
    pub fn reset(&self) {
        self.requests.lock().unwrap().clear();
    }

    /// Pings, and everything else by the number of its kind.
    pub fn counted(&self) -> (usize, BTreeMap<i32, usize>) {
        let mut requests = self.requests.lock().unwrap().clone();
        (requests.remove(&PING).unwrap_or(0), requests)
    }
}

/// Passes on frame by frame: a length; and, after the first frame, a number of the client's and the kind.
async fn count(
    mut client: OwnedReadHalf,
    mut server: OwnedWriteHalf,
    requests: Arc<Mutex<BTreeMap<i32, usize>>>,
) -> std::io::Result<()> {
    let mut is_first = true;
    loop {
        let length = client.read_u32().await?;
        let mut frame = vec![0; length.try_into().unwrap()];
        client.read_exact(&mut frame).await?;
        if !std::mem::take(&mut is_first) {
            let kind = i32::from_be_bytes(frame[4..8].try_into().unwrap());
            *requests.lock().unwrap().entry(kind).or_default() += 1;
        }
        server.write_all(&[&length.to_be_bytes()[..], &frame].concat()).await?;
    }
}
