//! The reference model against the suite.

use std::{
    collections::HashMap,
    io,
    net::SocketAddr,
    process::ExitCode,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use async_trait::async_trait;
use lock_conformance::{Fixture, Lever, Need, Server};
use lock_core::{
    Backend, Error, Guarantees, Name, Result,
    memory::{DRIVER, Memory},
};

fn main() -> ExitCode {
    lock_conformance::main(MemoryFixture::default())
}

/// Stores by their URL, as servers are by their address.
#[derive(Debug, Default)]
struct MemoryFixture(Stores);

type Stores = Arc<Mutex<HashMap<String, Memory>>>;

#[async_trait]
impl Fixture for MemoryFixture {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn guarantees(&self) -> Guarantees {
        (DRIVER.guarantees)()
    }

    fn offers(&self) -> &'static [Need] {
        &[Need::DeleteRecord]
    }

    fn serve(&self) -> io::Result<Box<dyn Server>> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let url = format!("memory:{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let memory = Memory::new();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(url.clone(), memory.clone());
        Ok(Box::new(Store { url, memory }))
    }

    async fn connect(&self, url: &str) -> Result<Box<dyn Backend>> {
        let stores = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let store = stores.get(url).ok_or_else(|| Error::invalid_input("there is no such store"))?;
        Ok(Box::new(store.clone()))
    }
}

#[derive(Debug)]
struct Store {
    url: String,
    memory: Memory,
}

impl Server for Store {
    fn url(&self, _link: Option<SocketAddr>) -> String {
        self.url.clone()
    }

    fn pull(&self, lever: Lever<'_>) -> io::Result<()> {
        match lever {
            Lever::DeleteRecord(name) => {
                self.memory.revoke(&Name::new(name).map_err(io::Error::other)?);
                Ok(())
            }
            _ => Err(io::Error::new(io::ErrorKind::Unsupported, format!("no lever {lever:?}"))),
        }
    }
}
