//! ZooKeeper.

use std::time::Duration;

use async_trait::async_trait;
use futures_util::{StreamExt, stream};
use polylock::Address;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use zookeeper_client::{Acls, Client, CreateMode, Error};

use super::{Commands, Server};
use crate::{failure::Result, place::Place, record};

const SESSION: Duration = Duration::from_secs(40);

pub(super) struct ZooKeeper {
    client: Client,
    place: Place,
}

/// A session, and who may touch the nodes that it makes.
pub(crate) async fn dial(place: &Place) -> Result<(Client, Acls<'static>)> {
    let (addresses, _) = place.addresses(2181)?;
    let servers = addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let mut connector = Client::connector().with_session_timeout(SESSION);
    let acls = match place.credentials()? {
        (Some(user), Some(password)) => {
            connector = connector.with_auth("digest", format!("{user}:{password}").as_bytes());
            Acls::creator_all()
        }
        _ => Acls::anyone_all(),
    };
    Ok((connector.connect(&servers).await?, acls))
}

/// The node below which all of this run is.
pub(crate) fn base(place: &Place) -> Result<String> {
    let (_, root) = place.addresses(2181)?;
    let root = root.trim_end_matches('/');
    Ok(if root.is_empty() { format!("/{}", place.mark()) } else { format!("/{root}/{}", place.mark()) })
}

/// Makes a node and those above it, if they are missing.
pub(crate) async fn make(client: &Client, path: &str, acls: Acls<'static>) -> Result {
    match client.mkdir(path, &CreateMode::Persistent.with_acls(acls)).await {
        Ok(()) | Err(Error::NodeExists) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

impl ZooKeeper {
    pub(super) async fn connect(place: &Place) -> Result<Self> {
        Ok(Self { client: dial(place).await?.0, place: place.clone() })
    }
}

#[async_trait]
impl Server for ZooKeeper {
    async fn describe(&mut self) -> Result<record::Server> {
        let (addresses, _) = self.place.addresses(2181)?;
        let mut told = None;
        for address in &addresses {
            told = told.or(srvr(address).await);
        }
        let told = told.unwrap_or_default();
        let field = |key: &str| told.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
        let version = field("Zookeeper version:").and_then(|text| text.split(['-', ',']).next());
        let topology = match field("Mode:") {
            Some("standalone") => "one server".into(),
            Some(_) => format!("{} servers", addresses.len()),
            None => "not told".into(),
        };
        Ok(record::Server {
            backend: "zookeeper".into(),
            url: self.place.shown(),
            version: version.unwrap_or("not told").into(),
            durability: "log written before each answer; whether it is synced, the server does not tell"
                .into(),
            topology,
        })
    }

    /// Packets, pings among them.
    async fn commands(&mut self) -> Option<Commands> {
        let (addresses, _) = self.place.addresses(2181).ok()?;
        let mut commands = Commands::default();
        for address in &addresses {
            let told = srvr(address).await?;
            let received = told.lines().find_map(|line| line.strip_prefix("Received:"));
            commands.total += received?.trim().parse::<f64>().ok()?;
        }
        commands.by_kind.insert("packets".into(), commands.total);
        Some(commands)
    }

    async fn tidy(&mut self) -> Result {
        let base = base(&self.place)?;
        let folders = match self.client.list_children(&base).await {
            Ok(children) => children,
            Err(Error::NoNode) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let (client, base) = (&self.client, base.as_str());
        let deleted = stream::iter(folders).map(|child| async move {
            let path = format!("{base}/{child}");
            for inner in client.list_children(&path).await.unwrap_or_default() {
                let _ = client.delete(&format!("{path}/{inner}"), None).await;
            }
            // What cannot be deleted is found by the last deletion.
            let _ = client.delete(&path, None).await;
        });
        deleted.buffer_unordered(256).collect::<Vec<()>>().await;
        Ok(client.delete(base, None).await?)
    }
}

async fn srvr(Address { host, port, .. }: &Address) -> Option<String> {
    let mut stream = TcpStream::connect((host.as_str(), *port)).await.ok()?;
    stream.write_all(b"srvr").await.ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.ok()?;
    Some(answer).filter(|answer| answer.contains("Mode:"))
}
