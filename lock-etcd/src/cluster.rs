use std::{
    future::Future,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use etcd_client::{
    Client, DeleteOptions, DeleteResponse, Error as EtcdError, GetOptions, GetResponse, KvClient,
    LeaseClient, LeaseGrantOptions, Txn, TxnResponse, WatchClient,
};
use lock_core::{Error, Moment};
use tokio::{runtime::Handle, sync::watch};

use crate::{
    EtcdOptions,
    dial::Dialer,
    error::{self, Failure, Nature},
    lease::Lease,
};

/// The members of the cluster, of which one at a time is asked.
///
/// A request that fails below etcd, or that somebody stops waiting for, takes the member's turn away:
/// the next request goes to the next member, and with a single member over a new connection. So nothing
/// that is asked again depends on one silent stream.
pub(crate) struct Cluster {
    dialer: Arc<Dialer>,
    runtime: Handle,
    turn: watch::Sender<u64>,
    /// Turns that ended since a member last gave an answer.
    failures: AtomicU32,
    last: Mutex<Option<Dial>>,
}

/// A connection of one turn: being made, or what came of it.
#[derive(Clone)]
struct Dial {
    turn: u64,
    outcome: watch::Receiver<Option<Result<Arc<Member>, Failure>>>,
}

/// The member whose turn it is, and the connection to it.
pub(crate) struct Member {
    pub(crate) turn: u64,
    kv: KvClient,
    lease: LeaseClient,
    pub(crate) watch: WatchClient,
}

/// One request under way. Dropped after some time without an answer, it ends its member's turn.
pub(crate) struct Trial<'a> {
    cluster: &'a Cluster,
    turn: Option<u64>,
    began: Instant,
}

/// A request that is dropped sooner says nothing about the member: its caller has changed its mind.
const PATIENCE: Duration = Duration::from_millis(40);

impl Cluster {
    /// Reads the files that the options name. Nothing is sent; connections will live on this runtime.
    pub(crate) fn new(options: &EtcdOptions, runtime: Handle) -> Result<Self, Error> {
        Ok(Self {
            dialer: Arc::new(Dialer::new(options)?),
            runtime,
            turn: watch::Sender::new(0),
            failures: AtomicU32::new(0),
            last: Mutex::default(),
        })
    }

    /// A signal that changes when another member is asked from now on.
    pub(crate) fn turns(&self) -> watch::Receiver<u64> {
        self.turn.subscribe()
    }

    pub(crate) fn trial(&self, turn: u64) -> Trial<'_> {
        Trial { cluster: self, turn: Some(turn), began: Instant::now() }
    }

    /// The member to ask. Whoever comes while a connection is made waits for the same.
    ///
    /// Dropping the future does not stop the dial, which others may wait for.
    pub(crate) async fn member(&self) -> Result<Arc<Member>, Failure> {
        let Dial { turn, mut outcome } = self.dial();
        let dialed = outcome.wait_for(Option::is_some).await.ok().and_then(|dialed| dialed.clone());
        let dialed = dialed.unwrap_or_else(|| Err(error::no_runtime()));
        if dialed.is_err() {
            self.trial(turn).failed();
        }
        dialed
    }

    /// The dial of this turn, begun if need be.
    fn dial(&self) -> Dial {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let turn = *self.turn.borrow();
        if let Some(dial) = last.as_ref().filter(|dial| dial.turn == turn) {
            return dial.clone();
        }
        let pause = self.dialer.pause(self.failures.load(Ordering::Relaxed));
        let (dialer, (done, outcome)) = (self.dialer.clone(), watch::channel(None));
        self.runtime.spawn(async move {
            tokio::time::sleep(pause).await;
            done.send_replace(Some(dialer.dial(turn).await));
        });
        let dial = Dial { turn, outcome };
        *last = Some(dial.clone());
        dial
    }

    pub(crate) async fn txn(&self, txn: Txn) -> Result<TxnResponse, Failure> {
        self.ask(|member| {
            let (mut kv, txn) = (member.kv.clone(), txn.clone());
            async move { kv.txn(txn).await }
        })
        .await
    }

    /// A linearizable read.
    pub(crate) async fn get(&self, key: &str, options: GetOptions) -> Result<GetResponse, Failure> {
        self.ask(|member| {
            let (mut kv, options) = (member.kv.clone(), options.clone());
            async move { kv.get(key, Some(options)).await }
        })
        .await
    }

    /// Deletes one key; the answer has what was there.
    pub(crate) async fn delete(&self, key: &str) -> Result<DeleteResponse, Failure> {
        self.ask(|member| {
            let mut kv = member.kv.clone();
            async move { kv.delete(key, Some(DeleteOptions::new().with_prev_key())).await }
        })
        .await
    }

    /// A lease with an id of our choice, so that it can be revoked whatever becomes of the answer.
    pub(crate) async fn grant(&self, id: i64, seconds: i64) -> Result<Lease, Failure> {
        let since = Moment::now();
        let answer = self
            .ask(|member| {
                let mut lease = member.lease.clone();
                async move { lease.grant(seconds, Some(LeaseGrantOptions::new().with_id(id))).await }
            })
            .await?;
        Ok(Lease { id, asked: seconds, granted: answer.ttl(), since })
    }

    /// The same lease from now on; `None` if the server says that it is over.
    pub(crate) async fn keep_alive(&self, lease: Lease) -> Result<Option<Lease>, Failure> {
        let since = Moment::now();
        let kept = self.ask(|member| {
            let mut client = member.lease.clone();
            // A stream for this one word, so that none can stall the others.
            async move { client.keep_alive(lease.id).await.map(drop) }
        });
        alive(kept.await.map(|()| Lease { since, ..lease }))
    }

    /// How long a lease is that somebody else was granted; `None` if it is over.
    pub(crate) async fn granted(&self, id: i64) -> Result<Option<i64>, Failure> {
        let told = self.ask(|member| {
            let mut client = member.lease.clone();
            async move { client.time_to_live(id, None).await }
        });
        let told = alive(told.await)?;
        // In its last second it has none left; when it is over, less than none.
        Ok(told.filter(|told| told.ttl() >= 0).map(|told| told.granted_ttl()))
    }

    /// Ends a lease, and with it every key and every request that still wants to use it; whether it was there.
    pub(crate) async fn revoke(&self, id: i64) -> Result<bool, Failure> {
        let revoked = self.ask(|member| {
            let mut client = member.lease.clone();
            async move { client.revoke(id).await }
        });
        Ok(alive(revoked.await)?.is_some())
    }

    /// Asks the member whose turn it is, and the others only if the request certainly did not arrive.
    async fn ask<T, F>(&self, request: impl Fn(Arc<Member>) -> F + Send) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, EtcdError>> + Send,
    {
        let mut left = self.dialer.members();
        loop {
            left -= 1;
            let failure = match self.member().await {
                Err(failure) => failure,
                Ok(member) => {
                    let trial = self.trial(member.turn);
                    match request(member).await {
                        Ok(answer) => {
                            trial.answered();
                            return Ok(answer);
                        }
                        Err(failed) => {
                            let failure = error::from_etcd(&failed);
                            match failure.nature {
                                Nature::Told | Nature::LeaseGone => trial.answered(),
                                Nature::NeverSent | Nature::Unknown => trial.failed(),
                            }
                            failure
                        }
                    }
                }
            };
            if failure.nature != Nature::NeverSent || left == 0 {
                return Err(failure);
            }
        }
    }
}

impl Member {
    pub(crate) fn new(turn: u64, client: &Client) -> Self {
        Self { turn, kv: client.kv_client(), lease: client.lease_client(), watch: client.watch_client() }
    }
}

impl Trial<'_> {
    /// The member has said something.
    pub(crate) fn answered(mut self) {
        self.turn = None;
        if self.cluster.failures.load(Ordering::Relaxed) > 0 {
            self.cluster.failures.store(0, Ordering::Relaxed);
        }
    }

    /// The request has failed below etcd.
    pub(crate) fn failed(mut self) {
        self.pass();
    }

    fn pass(&mut self) {
        let Some(turn) = self.turn.take() else { return };
        // Many requests may fail together; they take one turn.
        self.cluster.turn.send_if_modified(|current| {
            let mine = *current == turn;
            *current += u64::from(mine);
            self.cluster.failures.fetch_add(u32::from(mine), Ordering::Relaxed);
            mine
        });
    }
}

impl Drop for Trial<'_> {
    fn drop(&mut self) {
        if self.began.elapsed() >= PATIENCE {
            self.pass();
        }
    }
}

/// The answer, or `None` if it is that the lease is over.
fn alive<T>(answer: Result<T, Failure>) -> Result<Option<T>, Failure> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(failure) if failure.nature == Nature::LeaseGone => Ok(None),
        Err(failure) => Err(failure),
    }
}
