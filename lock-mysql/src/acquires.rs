use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use lock_core::Owner;
use tokio::sync::watch;

/// The acquires under way, by owner.
///
/// An acquire whose caller is gone runs to its end in its task. A release that came after it must not be
/// overtaken by it: it would find nothing, and the acquire would then take the lock for nobody.
#[derive(Debug, Default)]
pub(crate) struct Acquires(Mutex<HashMap<Owner, watch::Sender<usize>>>);

/// One acquire under way, until it is dropped.
#[derive(Debug)]
pub(crate) struct UnderWay {
    acquires: Arc<Acquires>,
    owner: Owner,
}

impl Acquires {
    pub(crate) fn begin(self: &Arc<Self>, owner: Owner) -> UnderWay {
        self.lock().entry(owner).or_default().send_modify(|count| *count += 1);
        UnderWay { acquires: self.clone(), owner }
    }

    /// Waits until this owner's acquires have ended.
    pub(crate) async fn ended(&self, owner: Owner) {
        let count = self.lock().get(&owner).map(watch::Sender::subscribe);
        if let Some(mut count) = count {
            // An error says that the last one has taken the entry away.
            let _ = count.wait_for(|count| *count == 0).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Owner, watch::Sender<usize>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut acquires = self.acquires.lock();
        if let Some(count) = acquires.get(&self.owner) {
            count.send_modify(|count| *count -= 1);
            if *count.borrow() == 0 {
                acquires.remove(&self.owner);
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
