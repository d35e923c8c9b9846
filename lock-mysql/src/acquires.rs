use std::{
    collections::HashMap,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use lock_core::Owner;
use tokio::sync::Notify;

/// The acquires under way, by owner.
///
/// An acquire whose caller is gone runs to its end in its task. A release that came after it must not be
/// overtaken by it: it would find nothing, and the acquire would then take the lock for nobody.
#[derive(Debug, Default)]
pub(crate) struct Acquires {
    counts: Mutex<HashMap<Owner, usize>>,
    ended: Notify,
}

/// One acquire under way, until it is dropped.
#[derive(Debug)]
pub(crate) struct UnderWay {
    acquires: Arc<Acquires>,
    owner: Owner,
}

impl Acquires {
    pub(crate) fn begin(self: &Arc<Self>, owner: Owner) -> UnderWay {
        *self.lock().entry(owner).or_default() += 1;
        UnderWay { acquires: self.clone(), owner }
    }

    /// Waits until this owner's acquires have ended.
    pub(crate) async fn ended(&self, owner: Owner) {
        while self.lock().contains_key(&owner) {
            let mut ended = pin!(self.ended.notified());
            // Before the look, so that no end between the two is missed.
            ended.as_mut().enable();
            if self.lock().contains_key(&owner) {
                ended.await;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Owner, usize>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut counts = self.acquires.lock();
        if let Some(count) = counts.get_mut(&self.owner) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.owner);
                self.acquires.ended.notify_waiters();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::Future,
        pin::pin,
        task::{Context, Waker},
    };

    use super::*;

    #[tokio::test]
    async fn a_release_waits_for_its_own_acquires_only() {
        let (acquires, owner) = (Arc::new(Acquires::default()), Owner::from_bytes([1; 16]));
        acquires.ended(owner).await;
        let (first, second) = (acquires.begin(owner), acquires.begin(owner));
        acquires.ended(Owner::from_bytes([2; 16])).await;
        let mut ended = pin!(acquires.ended(owner));
        let mut context = Context::from_waker(Waker::noop());
        assert!(ended.as_mut().poll(&mut context).is_pending());
        drop(first);
        assert!(ended.as_mut().poll(&mut context).is_pending());
        drop(second);
        ended.await;
        assert!(acquires.lock().is_empty());
    }
}
