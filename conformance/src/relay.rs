//! For the tests that a backend has beside the suite: what lies between a client and a server.

use std::{future::Future, io, net::Ipv4Addr};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
};

/// Passes connections on, and can hold the answers back.
#[derive(Debug)]
pub struct Relay {
    /// Where clients connect.
    pub address: String,
    held: watch::Sender<bool>,
}

impl Relay {
    /// To a server, for as long as the test's runtime lives.
    ///
    /// # Panics
    ///
    /// If there is no port to be had.
    pub async fn to(server: String) -> Self {
        Self::through(server, |mut client, mut server| async move {
            tokio::io::copy(&mut client, &mut server).await.map(drop)
        })
        .await
    }

    /// The same, with requests passed on by a function of the caller's: from the client, to the server.
    ///
    /// # Panics
    ///
    /// As [`to`](Self::to).
    pub async fn through<F>(
        server: String,
        requests: impl Fn(OwnedReadHalf, OwnedWriteHalf) -> F + Send + 'static,
    ) -> Self
    where
        F: Future<Output = io::Result<()>> + Send + 'static,
    {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let address = listener.local_addr().expect("a bound port").to_string();
        let held = watch::Sender::new(false);
        let gate = held.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(&server).await.expect("the server listens");
                let (answers, server) = server.into_split();
                let (client, back) = client.into_split();
                tokio::spawn(pass(answers, back, gate.subscribe()));
                tokio::spawn(requests(client, server));
            }
        });
        Self { address, held }
    }

    /// Lets no answer through until told to; requests go on.
    pub fn hold_answers(&self, held: bool) {
        self.held.send_replace(held);
    }
}

/// Passes on what the server says, while nothing is held back.
async fn pass(
    mut server: OwnedReadHalf,
    mut client: OwnedWriteHalf,
    mut held: watch::Receiver<bool>,
) -> io::Result<()> {
    let mut bytes = [0; 4096];
    loop {
        let length = server.read(&mut bytes).await?;
        if length == 0 {
            return client.shutdown().await;
        }
        // Without its handle a relay goes on.
        let _ = held.wait_for(|held| !held).await;
        client.write_all(&bytes[..length]).await?;
    }
}
