//! The bare driver on ZooKeeper: the requests of our queue, pipelined as we do, and a node without one.

use std::sync::Arc;

use async_trait::async_trait;
use polylock::Owner;
use zookeeper_client::{Acls, Client as Driver, CreateMode, Error};

use super::{Client, Contender, Lock, no_wait, rust};
use crate::{
    failure::{Failure, Result},
    place::Place,
    record::{self, Kind, Workload},
    server::zookeeper::{base, dial, make},
};

const VERSION: &str = "zookeeper-client 0.11";

pub(super) fn add(all: &mut Vec<Box<dyn Contender>>) {
    all.extend([Box::new(Raw { fenced: true }) as Box<dyn Contender>, Box::new(Raw { fenced: false })]);
}

struct Raw {
    fenced: bool,
}

#[async_trait]
impl Contender for Raw {
    fn who(&self) -> record::Contender {
        match self.fenced {
            true => rust("raw", Kind::Raw, VERSION),
            false => rust("raw, unfenced", Kind::Unfenced, VERSION),
        }
    }

    fn lacks(&self, workload: Workload) -> Option<&str> {
        no_wait(workload)
    }

    async fn open(&self, place: &Place) -> Result<Arc<dyn Client>> {
        let (driver, acls) = dial(place).await?;
        let base = base(place)?;
        make(&driver, &base, acls).await?;
        Ok(Arc::new(RawClient { driver, acls, base, fenced: self.fenced }))
    }
}

struct RawClient {
    driver: Driver,
    acls: Acls<'static>,
    base: String,
    fenced: bool,
}

#[async_trait]
impl Client for RawClient {
    fn lock(&self, name: &str) -> Result<Box<dyn Lock>> {
        let (driver, acls) = (self.driver.clone(), self.acls);
        Ok(match self.fenced {
            true => Box::new(Queued {
                driver,
                acls,
                folder: format!("{}/{name}-raw", self.base),
                own: String::new(),
            }),
            false => Box::new(Node { driver, acls, path: format!("{}/{name}-unfenced", self.base) }),
        })
    }
}

struct Queued {
    driver: Driver,
    acls: Acls<'static>,
    folder: String,
    own: String,
}

#[async_trait]
impl Lock for Queued {
    async fn acquire(&mut self) -> Result {
        let prefix = format!("{}/_c_{}-lock-", self.folder, Owner::random()?.to_hex());
        let ephemeral = CreateMode::EphemeralSequential.with_acls(self.acls);
        loop {
            let created = self.driver.create(&prefix, b"host:1234", &ephemeral);
            let children = self.driver.list_children(&self.folder);
            let number = match created.await {
                Ok((_, number)) => number,
                Err(Error::NoNode) => {
                    make(&self.driver, &self.folder, self.acls).await?;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            self.own = format!("{prefix}{number}");
            let alone = children.await?.len() == 1;
            return if alone { Ok(()) } else { Err(Failure::new("others contend for the bare lock")) };
        }
    }

    async fn release(&mut self) -> Result {
        Ok(self.driver.delete(&self.own, None).await?)
    }
}

struct Node {
    driver: Driver,
    acls: Acls<'static>,
    path: String,
}

#[async_trait]
impl Lock for Node {
    async fn acquire(&mut self) -> Result {
        let ephemeral = CreateMode::Ephemeral.with_acls(self.acls);
        self.driver.create(&self.path, b"", &ephemeral).await?;
        Ok(())
    }

    async fn release(&mut self) -> Result {
        Ok(self.driver.delete(&self.path, None).await?)
    }
}
