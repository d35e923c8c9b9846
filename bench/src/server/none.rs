//! Backends without a server.

use async_trait::async_trait;

use super::Server;
use crate::{failure::Result, place::Place, record};

pub(super) struct NoServer(Place);

impl NoServer {
    pub(super) fn new(place: &Place) -> Self {
        Self(place.clone())
    }
}

#[async_trait]
impl Server for NoServer {
    async fn describe(&mut self) -> Result<record::Server> {
        let backend = self.0.backend();
        let durability = match backend {
            "memory" => "none: ends with the process",
            _ => "state files, written before a lock is given",
        };
        Ok(record::Server {
            backend: backend.into(),
            url: self.0.shown(),
            version: env!("CARGO_PKG_VERSION").into(),
            durability: durability.into(),
            topology: "no server".into(),
        })
    }

    /// The folder that this run made below that of the URL.
    #[cfg(feature = "file")]
    async fn tidy(&mut self) -> Result {
        if self.0.backend() == "file" {
            let options = polylock::file::FileOptions::from_url(polylock::Url::parse(&self.0.ours())?)?;
            let folder = options.directory();
            if folder.ends_with(self.0.mark()) && folder.is_dir() {
                std::fs::remove_dir_all(folder)?;
            }
        }
        Ok(())
    }
}
