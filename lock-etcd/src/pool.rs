use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use lock_core::{Moment, Owner};
use tokio::{
    runtime::Handle,
    sync::{Notify, mpsc},
    task::JoinSet,
};

use crate::{
    cluster::Cluster,
    error::Failure,
    lease::{Lease, seconds},
};

/// How many leases of one length lie idle at the most.
const IDLE: usize = 8;
/// An idle lease that no claim took for so many of its lengths is given back.
const UNUSED: u32 = 8;
/// A longer lease is not kept for another claim, since it outlives a killed process by its length.
const LONGEST: Duration = Duration::from_mins(10);
/// How long one request of the pool's own may take, and one that was given up may take to arrive.
const LIMIT: Duration = Duration::from_secs(2);

/// A lease to be ended.
struct Order {
    lease: Lease,
    /// Whether the request that grants it may arrive after this order.
    may_come: bool,
}

/// Leases without a claim, granted before they are needed: so an acquire is one write on the server.
///
/// One claim at a time uses a lease, so that a claim that nobody renews ends by itself. A lease comes back
/// only when every request that could still put a key under it was answered, and its one key is gone.
pub(crate) struct Pool {
    cluster: Arc<Cluster>,
    shelf: Arc<Shelf>,
    revoked: mpsc::UnboundedSender<Order>,
}

#[derive(Default)]
struct Shelf {
    idle: Mutex<Vec<Idle>>,
    /// Whether nobody looks after the shelf, since there was nothing on it.
    is_unattended: AtomicBool,
    filled: Notify,
}

struct Idle {
    lease: Lease,
    /// When its last claim ended.
    unused_since: Moment,
}

impl Pool {
    /// Leases are looked after on this runtime, and given back when the pool is dropped.
    pub(crate) fn new(cluster: Arc<Cluster>, runtime: &Handle) -> Self {
        let (revoked, orders) = mpsc::unbounded_channel();
        let shelf = Arc::new(Shelf::default());
        runtime.spawn(attend(cluster.clone(), shelf.clone(), orders));
        Self { cluster, shelf, revoked }
    }

    /// A lease of at least this length that no claim uses.
    pub(crate) async fn take(&self, length: Duration) -> Result<Lease, Failure> {
        let asked = seconds(length);
        if let Some(lease) = self.shelf.take(asked) {
            return Ok(lease);
        }
        let mut granting = Granting { pool: self, id: Some(random_id()?), asked };
        let lease = self.cluster.grant(granting.id.unwrap_or_default(), asked).await?;
        granting.id = None;
        Ok(lease)
    }

    /// Takes a lease back that has no key, and that no request under way could give one.
    pub(crate) fn put(&self, lease: Lease) {
        let can_be_kept = lease.length() <= LONGEST && lease.is_usable();
        if !can_be_kept || !self.shelf.put(Idle { lease, unused_since: Moment::now() }) {
            self.revoke(lease);
        }
    }

    /// Ends a lease in the background, with whatever is attached to it.
    pub(crate) fn revoke(&self, lease: Lease) {
        // Without its runtime the pool can do nothing more; the lease runs out.
        let _ = self.revoked.send(Order { lease, may_come: false });
    }
}

/// A grant whose answer has not come: unless it does, the lease is revoked.
struct Granting<'a> {
    pool: &'a Pool,
    id: Option<i64>,
    asked: i64,
}

impl Drop for Granting<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            let lease = Lease { id, asked: self.asked, granted: self.asked, since: Moment::now() };
            let _ = self.pool.revoked.send(Order { lease, may_come: true });
        }
    }
}

fn random_id() -> Result<i64, Failure> {
    let random = Owner::random().map_err(|error| Failure { error, nature: crate::error::Nature::Told })?;
    let [a, b, c, d, e, f, g, h, ..] = *random.as_bytes();
    Ok((i64::from_be_bytes([a, b, c, d, e, f, g, h]) & i64::MAX).max(1))
}

impl Shelf {
    /// The one that was used last: the others run out sooner, and may be left to.
    fn take(&self, asked: i64) -> Option<Lease> {
        let mut idle = self.lock();
        let index = idle.iter().rposition(|idle| idle.lease.asked == asked && idle.lease.is_usable())?;
        Some(idle.remove(index).lease)
    }

    /// Whether there was room for it.
    fn put(&self, more: Idle) -> bool {
        let mut idle = self.lock();
        if idle.iter().filter(|idle| idle.lease.asked == more.lease.asked).count() >= IDLE {
            return false;
        }
        idle.push(more);
        drop(idle);
        if self.is_unattended.swap(false, Ordering::AcqRel) {
            self.filled.notify_one();
        }
        true
    }

    /// When the first lease is to be proved again.
    fn due(&self) -> Option<Moment> {
        self.lock().iter().map(|idle| idle.lease.since + idle.lease.length() / 4).min()
    }

    fn take_due(&self) -> Vec<Idle> {
        let mut idle = self.lock();
        idle.extract_if(.., |idle| idle.lease.age() >= idle.lease.length() / 4).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Idle>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tops up what lies on the shelf, and revokes what is ordered; in the end, when the pool is gone, all.
async fn attend(cluster: Arc<Cluster>, shelf: Arc<Shelf>, mut orders: mpsc::UnboundedReceiver<Order>) {
    let mut tasks = JoinSet::new();
    loop {
        let due = shelf.due();
        if due.is_none() {
            shelf.is_unattended.store(true, Ordering::Release);
            if shelf.due().is_some() {
                continue;
            }
        }
        tokio::select! {
            order = orders.recv() => match order {
                Some(order) => drop(tasks.spawn(revoke(cluster.clone(), order))),
                None => break,
            },
            Some(_) = tasks.join_next() => {}
            () = shelf.filled.notified() => {}
            () = until(due) => {
                for idle in shelf.take_due() {
                    tasks.spawn(top_up(cluster.clone(), shelf.clone(), idle));
                }
            }
        }
    }
    loop {
        // What is being topped up comes back to the shelf.
        for Idle { lease, .. } in shelf.lock().drain(..) {
            tasks.spawn(revoke(cluster.clone(), Order { lease, may_come: false }));
        }
        if tasks.join_next().await.is_none() {
            return;
        }
    }
}

async fn until(due: Option<Moment>) {
    match due {
        Some(due) => tokio::time::sleep(due.saturating_since(Moment::now())).await,
        None => std::future::pending().await,
    }
}

async fn top_up(cluster: Arc<Cluster>, shelf: Arc<Shelf>, idle: Idle) {
    let Idle { lease, unused_since } = idle;
    let unused = Moment::now().saturating_since(unused_since);
    if unused < lease.length() * UNUSED
        && let Ok(Ok(Some(lease))) = tokio::time::timeout(LIMIT, cluster.keep_alive(lease)).await
        // Others may have taken its room meanwhile.
        && shelf.put(Idle { lease, unused_since })
    {
        return;
    }
    revoke(cluster, Order { lease, may_come: false }).await;
}

/// Asks until the server answers, or until the lease is over by itself; for a lease that may yet come, for a
/// while until it was there.
async fn revoke(cluster: Arc<Cluster>, Order { lease, may_come }: Order) {
    let ordered = Moment::now();
    let mut pause = Duration::from_millis(20);
    while Moment::now().saturating_since(ordered) <= lease.length() {
        match tokio::time::timeout(LIMIT, cluster.revoke(lease.id)).await {
            Ok(Ok(false)) if may_come && Moment::now().saturating_since(ordered) < LIMIT => {}
            Ok(Ok(_)) => return,
            Ok(Err(failure)) if !failure.error.is_transient() => return,
            Ok(Err(_)) | Err(_) => {}
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(1));
    }
}
