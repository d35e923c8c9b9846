//! The bare driver on etcd: the requests of our queue, and a put and a delete without one.

use std::sync::Arc;

use async_trait::async_trait;
use etcd_client::{
    Client as Driver, Compare, CompareOp, DeleteOptions, GetOptions, KvClient, PutOptions, SortOrder,
    SortTarget, Txn, TxnOp,
};
use polylock::{Name, Owner};

use super::{Client, Contender, LEASE, Lock, no_wait, rust};
use crate::{
    failure::{Failure, Result},
    place::Place,
    record::{self, Kind, Workload},
    server::etcd::dial,
};

const VERSION: &str = "etcd-client 0.21";

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
        let mut driver = dial(place).await?;
        let lease = driver.lease_grant(LEASE.as_secs().cast_signed(), None).await?.id();
        Ok(Arc::new(RawClient { driver, lease, place: place.clone(), fenced: self.fenced }))
    }
}

struct RawClient {
    driver: Driver,
    /// One for all keys.
    lease: i64,
    place: Place,
    fenced: bool,
}

#[async_trait]
impl Client for RawClient {
    fn lock(&self, name: &str) -> Result<Box<dyn Lock>> {
        let (kv, lease) = (self.driver.kv_client(), self.lease);
        let key = |name: String| -> Result<String> {
            Ok((self.place.driver()?.key)(&self.place.parsed()?, &Name::new(name)?)?)
        };
        Ok(match self.fenced {
            true => {
                Box::new(Queued { kv, lease, queue: key(format!("{name}-raw"))? + "/", own: String::new() })
            }
            false => Box::new(Put { kv, lease, key: key(format!("{name}-unfenced"))? }),
        })
    }

    async fn close(&self) {
        let _ = self.driver.lease_client().revoke(self.lease).await;
    }
}

/// A new key each time, as claims have: the server goes through those that were deleted until it is
/// compacted.
struct Queued {
    kv: KvClient,
    lease: i64,
    queue: String,
    own: String,
}

#[async_trait]
impl Lock for Queued {
    async fn acquire(&mut self) -> Result {
        self.own = format!("{}{}", self.queue, Owner::random()?.to_hex());
        let newest = GetOptions::new().with_prefix().with_sort(SortTarget::Create, SortOrder::Descend);
        let join = Txn::new()
            .when([Compare::create_revision(&*self.own, CompareOp::Equal, 0)])
            .and_then([
                TxnOp::put(&*self.own, "300 host:1234", Some(PutOptions::new().with_lease(self.lease))),
                TxnOp::get(&*self.queue, Some(newest.with_limit(2))),
            ])
            .or_else([TxnOp::get(&*self.own, None)]);
        held(self.kv.txn(join).await?.succeeded())
    }

    async fn release(&mut self) -> Result {
        let answer = self.kv.delete(&*self.own, Some(DeleteOptions::new().with_prev_key())).await?;
        held(answer.deleted() == 1)
    }
}

/// One key that is there or not.
struct Put {
    kv: KvClient,
    lease: i64,
    key: String,
}

#[async_trait]
impl Lock for Put {
    async fn acquire(&mut self) -> Result {
        let take = Txn::new()
            .when([Compare::create_revision(&*self.key, CompareOp::Equal, 0)])
            .and_then([TxnOp::put(&*self.key, "", Some(PutOptions::new().with_lease(self.lease)))]);
        held(self.kv.txn(take).await?.succeeded())
    }

    async fn release(&mut self) -> Result {
        held(self.kv.delete(&*self.key, None).await?.deleted() == 1)
    }
}

fn held(yes: bool) -> Result {
    if yes { Ok(()) } else { Err(Failure::new("the bare lock is not held")) }
}
