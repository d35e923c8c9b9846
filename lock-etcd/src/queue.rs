//! The requests about a queue of claims, and what their answers say. The oldest key holds.

use std::time::Duration;

use etcd_client::{
    Compare, CompareOp, GetOptions, GetResponse, KeyValue, PutOptions, SortOrder, SortTarget, Txn, TxnOp,
    TxnOpResponse, TxnResponse,
};

use crate::{
    error::{self, Failure},
    keys::Keys,
    lease::Lease,
};

/// What came of an attempt to make a claim's key.
pub(crate) enum Entered {
    /// It was made by this revision; whether others are in front of it was not asked.
    Made(i64),
    /// It was made by this revision, and is the oldest.
    First(i64),
    /// It was made by this revision, and another one is older.
    Behind(i64),
    /// It was there already.
    Was(KeyValue),
    /// It was not made, since the lock is taken; its holder's lease is so long, if it says so.
    Taken(Option<Duration>),
}

/// Joins the queue, unless the claim is in it: one round trip that also tells who is in front.
pub(crate) fn join(keys: &Keys, value: String, lease: Lease) -> Txn {
    Txn::new()
        .when([Compare::create_revision(&*keys.own, CompareOp::Equal, 0)])
        .and_then([put(keys, value, lease), TxnOp::get(&*keys.queue, Some(newest()))])
        .or_else([TxnOp::get(&*keys.own, None)])
}

/// Joins the queue, unless the claim is in it; without a look at the others, which costs the server more the
/// more keys have come and gone.
pub(crate) fn join_unseen(keys: &Keys, value: String, lease: Lease) -> Txn {
    Txn::new()
        .when([Compare::create_revision(&*keys.own, CompareOp::Equal, 0)])
        .and_then([put(keys, value, lease)])
        .or_else([TxnOp::get(&*keys.own, None)])
}

/// Takes the lock if nobody is in the queue, and leaves nothing behind otherwise.
pub(crate) fn take(keys: &Keys, value: String, lease: Lease) -> Txn {
    let nobody = Compare::create_revision(&*keys.queue, CompareOp::Equal, 0).with_prefix();
    Txn::new()
        .when([nobody])
        .and_then([put(keys, value, lease)])
        .or_else([TxnOp::get(&*keys.own, None), TxnOp::get(&*keys.queue, Some(oldest()))])
}

/// What a claim's value says: the length of its lease, for those who wait, and the label, for people.
pub(crate) fn value(lease: Lease, label: &str) -> String {
    format!("{} {label}", lease.granted)
}

/// Reads the answer to any of them.
pub(crate) fn entered(keys: &Keys, answer: &TxnResponse) -> Result<Entered, Failure> {
    let revision = answer.header().ok_or_else(error::unexpected)?.revision();
    let parts = answer.op_responses();
    match (answer.succeeded(), parts.as_slice()) {
        (true, [TxnOpResponse::Put(_)]) => Ok(Entered::Made(revision)),
        (true, [TxnOpResponse::Put(_), TxnOpResponse::Get(newest)]) => match newest.kvs() {
            [_own] => Ok(Entered::First(revision)),
            [_own, _ahead] => Ok(Entered::Behind(revision)),
            _ => Err(error::unexpected()),
        },
        (false, [TxnOpResponse::Get(own), others @ ..]) => match (own.kvs(), others) {
            ([own], _) => Ok(Entered::Was(own.clone())),
            ([], [TxnOpResponse::Get(oldest)]) => {
                let holder = oldest.kvs().first().filter(|kv| kv.key() != keys.own.as_bytes());
                Ok(Entered::Taken(holder.and_then(lease_of)))
            }
            _ => Err(error::unexpected()),
        },
        _ => Err(error::unexpected()),
    }
}

/// Reads a claim's own key and the one in front of it, and no more.
pub(crate) fn place(created: i64) -> GetOptions {
    newest().with_max_create_revision(created).with_keys_only()
}

/// Reads all keys of a queue.
pub(crate) fn everybody() -> GetOptions {
    GetOptions::new().with_prefix().with_keys_only()
}

/// Reads the key that holds.
pub(crate) fn holder() -> GetOptions {
    oldest().with_keys_only()
}

/// The claim's own key, if the answer starts with it.
pub(crate) fn own<'a>(keys: &Keys, answer: &'a GetResponse) -> Option<&'a KeyValue> {
    answer.kvs().first().filter(|kv| kv.key() == keys.own.as_bytes())
}

fn put(keys: &Keys, value: String, lease: Lease) -> TxnOp {
    TxnOp::put(&*keys.own, value, Some(PutOptions::new().with_lease(lease.id)))
}

fn newest() -> GetOptions {
    GetOptions::new().with_prefix().with_sort(SortTarget::Create, SortOrder::Descend).with_limit(2)
}

fn oldest() -> GetOptions {
    GetOptions::new().with_prefix().with_sort(SortTarget::Create, SortOrder::Ascend).with_limit(1)
}

/// Keys of `etcdctl lock` have no value.
fn lease_of(holder: &KeyValue) -> Option<Duration> {
    let value = holder.value_str().ok()?;
    Some(Duration::from_secs(value.split(' ').next()?.parse().ok()?))
}
