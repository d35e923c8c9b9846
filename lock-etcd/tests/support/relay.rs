use std::net::Ipv4Addr;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
};

/// What lies between a client and a server, and can hold the answers back.
pub struct Relay {
    pub address: String,
    held: watch::Sender<bool>,
}

impl Relay {
    /// Lives as long as the test's runtime.
    pub async fn to(server: String) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let held = watch::Sender::new(false);
        let gate = held.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(&server).await.unwrap();
                let (answers, mut server) = server.into_split();
                let (mut client, back) = client.into_split();
                tokio::spawn(async move { tokio::io::copy(&mut client, &mut server).await });
                tokio::spawn(pass(answers, back, gate.subscribe()));
            }
        });
        Self { address, held }
    }

    /// Lets no answer through until told to; requests go on.
    pub fn hold_answers(&self, held: bool) {
        self.held.send_replace(held);
    }
}

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
        // Without its handle a relay goes on.
        let _ = held.wait_for(|held| !held).await;
        client.write_all(&bytes[..length]).await?;
    }
}
