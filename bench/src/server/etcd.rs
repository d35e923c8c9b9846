//! etcd.

use std::collections::BTreeMap;

use async_trait::async_trait;
use etcd_client::{Client, ConnectOptions};
use polylock::Address;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::{Commands, Server};
use crate::{
    failure::{Failure, Result},
    place::Place,
    record,
};

pub(super) struct Etcd {
    client: Client,
    place: Place,
}

/// A connection as our backend makes it.
pub(crate) async fn dial(place: &Place) -> Result<Client> {
    if place.parsed()?.scheme() != "etcd" {
        return Err(Failure::new("the bare driver is measured without TLS only"));
    }
    let (addresses, _) = place.addresses(2379)?;
    // Our backend asks one member at a time.
    let address = addresses.first().map(|address| format!("http://{address}"));
    let mut options = ConnectOptions::new().with_require_leader(true);
    if let (Some(user), password) = place.credentials()? {
        options = options.with_user(user, password.unwrap_or_default()).with_auto_token_refresh(true);
    }
    let address = address.ok_or_else(|| Failure::new("the URL names no server"))?;
    Ok(Client::connect([address], Some(options)).await?)
}

impl Etcd {
    pub(super) async fn connect(place: &Place) -> Result<Self> {
        Ok(Self { client: dial(place).await?, place: place.clone() })
    }
}

#[async_trait]
impl Server for Etcd {
    async fn describe(&mut self) -> Result<record::Server> {
        let version = self.client.status().await?.version().to_owned();
        let members = self.client.member_list().await?.members().len();
        Ok(record::Server {
            backend: "etcd".into(),
            url: self.place.shown(),
            version,
            durability: "log synced before each answer".into(),
            topology: if members == 1 { "one member".into() } else { format!("{members} members") },
        })
    }

    /// Messages that clients have sent: streams have many. Of all members of the URL.
    async fn commands(&mut self) -> Option<Commands> {
        let (addresses, _) = self.place.addresses(2379).ok()?;
        let mut commands = Commands::default();
        for address in addresses {
            for (kind, count) in received(&metrics(&address).await?) {
                commands.total += count;
                *commands.by_kind.entry(kind).or_default() += count;
            }
        }
        Some(commands)
    }
}

async fn metrics(Address { host, port, .. }: &Address) -> Option<String> {
    let mut stream = TcpStream::connect((host.as_str(), *port)).await.ok()?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n").await.ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.ok()?;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    answer.starts_with("HTTP/1.0 200").then_some(answer).or(None)
}

/// `grpc_server_msg_received_total{grpc_method="Txn",…} 12`
fn received(text: &str) -> BTreeMap<String, f64> {
    let mut counts = BTreeMap::new();
    for line in text.lines() {
        let Some(rest) = line.strip_prefix("grpc_server_msg_received_total{") else { continue };
        let method = rest.split("grpc_method=\"").nth(1).and_then(|rest| rest.split('"').next());
        let count = rest.rsplit_once(' ').and_then(|(_, count)| count.parse::<f64>().ok());
        if let (Some(method), Some(count)) = (method, count)
            && count > 0.0
        {
            *counts.entry(method.to_owned()).or_default() += count;
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_counted_by_method() {
        let text = "# HELP x\n\
            grpc_server_msg_received_total{grpc_method=\"Txn\",grpc_service=\"etcdserverpb.KV\",grpc_type=\"unary\"} 12\n\
            grpc_server_msg_received_total{grpc_method=\"Watch\",grpc_service=\"a\",grpc_type=\"bidi_stream\"} 1.5e+02\n\
            grpc_server_msg_received_total{grpc_method=\"Put\",grpc_service=\"a\",grpc_type=\"unary\"} 0\n";
        assert_eq!(received(text), [("Txn".into(), 12.0), ("Watch".into(), 150.0)].into());
    }
}
