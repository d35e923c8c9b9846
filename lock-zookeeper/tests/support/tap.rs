use std::{
    collections::BTreeMap,
    net::Ipv4Addr,
    sync::{Arc, Mutex},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream, tcp::OwnedReadHalf, tcp::OwnedWriteHalf},
    sync::watch,
};

/// A relay to a server that counts the requests of its clients by kind, and can hold the answers back.
pub struct Tap {
    pub address: String,
    requests: Arc<Mutex<BTreeMap<i32, usize>>>,
    held: watch::Sender<bool>,
}

/// The number of a request that only keeps a connection.
const PING: i32 = 11;

impl Tap {
    /// Lives as long as the test's runtime.
    pub async fn on(server: String) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let requests = Arc::<Mutex<BTreeMap<i32, usize>>>::default();
        let counted = requests.clone();
        let held = watch::Sender::new(false);
        let gate = held.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(&server).await.unwrap();
                let (answers, server) = server.into_split();
                let (client, back) = client.into_split();
                tokio::spawn(pass(answers, back, gate.subscribe()));
                tokio::spawn(count(client, server, counted.clone()));
            }
        });
        Self { address, requests, held }
    }

    /// Forgets what was counted so far.
    pub fn reset(&self) {
        self.requests.lock().unwrap().clear();
    }

    /// Lets no answer through until told to; requests go on.
    pub fn hold_answers(&self, held: bool) {
        self.held.send_replace(held);
    }

    /// Pings, and everything else by the number of its kind.
    pub fn counted(&self) -> (usize, BTreeMap<i32, usize>) {
        let mut requests = self.requests.lock().unwrap().clone();
        (requests.remove(&PING).unwrap_or(0), requests)
    }
}

/// Passes on what the server says, while nothing is held back.
async fn pass(
    mut server: OwnedReadHalf,
    mut client: OwnedWriteHalf,
    mut held: watch::Receiver<bool>,
) -> std::io::Result<()> {
    let mut bytes = [0; 4096];
    loop {
        let length = server.read(&mut bytes).await?;
        if length == 0 {
            return client.shutdown().await;
        }
        // Without its tap a relay goes on.
        let _ = held.wait_for(|held| !held).await;
        client.write_all(&bytes[..length]).await?;
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
