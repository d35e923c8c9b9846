use std::{future::Future, pin::Pin, sync::Arc};

use async_trait::async_trait;
use lock_core::{
    Attempt, Backend, Busy, Claim, Error, ErrorKind, Guarantees, Released, Renewal, Result, Wake,
};

use super::{
    Link, Way,
    state::{Place, Shared, State},
};

/// A link for backends without a wire: it fails between the core and the backend.
///
/// As on a wire, a request that waits in it arrives even if its caller has given up.
#[derive(Debug)]
pub(crate) struct Gate {
    backend: Arc<dyn Backend>,
    link: Arc<Shared>,
}

type Call<T> = Pin<Box<dyn Future<Output = Result<T>> + Send>>;

impl Gate {
    /// Puts the link's faults in front of the backend.
    pub(crate) fn new(backend: Arc<dyn Backend>, link: &Link) -> Self {
        Self { backend, link: link.shared.clone() }
    }

    async fn pass<T: Send + 'static>(&self, word: &'static str, call: Call<T>) -> Result<T> {
        self.link.requests.send_modify(|requests| requests.count(word));
        let state = *self.link.state.borrow();
        if state.is_clear() {
            return call.await;
        }
        if state.refusing {
            return Err(cut());
        }
        // It is under way from now on, whenever its task begins: a cut that comes first is one to it, and what is
        // sent later comes later.
        let place = self.link.place();
        let passing = tokio::spawn(through(self.link.clone(), state, place, word, call));
        passing.await.unwrap_or_else(|_| Err(cut()))
    }

    /// The wake as it arrives through the link.
    fn wake(&self, wake: Wake) -> Wake {
        let link = self.link.clone();
        let cuts = link.state.borrow().cuts;
        Box::pin(async move {
            tokio::select! {
                () = link.cut_more_than(cuts) => None,
                grant = async {
                    let grant = wake.await;
                    link.open(Way::ToClient).await;
                    grant
                } => grant,
            }
        })
    }
}

async fn through<T>(
    link: Arc<Shared>,
    state: State,
    mut place: Place,
    word: &'static str,
    call: Call<T>,
) -> Result<T> {
    let way = async {
        tokio::time::sleep(state.to_server.delay).await;
        // One connection is in order: what was sent first arrives first.
        place.turn().await;
        link.before_request(word);
        link.open(Way::ToServer).await;
        let reply = call.await;
        drop(place);
        link.after_request();
        link.before_reply();
        tokio::time::sleep(state.to_client.delay).await;
        link.open(Way::ToClient).await;
        reply
    };
    tokio::select! {
        biased;
        () = link.cut_more_than(state.cuts) => Err(cut()),
        reply = way => if link.state.borrow().cuts > state.cuts { Err(cut()) } else { reply },
    }
}

fn cut() -> Error {
    Error::new(ErrorKind::Unavailable, "the link was cut")
}

#[async_trait]
impl Backend for Gate {
    fn guarantees(&self) -> Guarantees {
        self.backend.guarantees()
    }

    async fn acquire(&self, claim: &Claim) -> Result<Attempt> {
        let (backend, claim) = (self.backend.clone(), claim.clone());
        let attempt = self.pass("ACQUIRE", Box::pin(async move { backend.acquire(&claim).await })).await?;
        Ok(match attempt {
            Attempt::Busy(Busy { wake: Some(wake), recheck_within, .. }) => {
                Attempt::Busy(Busy::new(Some(self.wake(wake)), recheck_within))
            }
            other => other,
        })
    }

    async fn renew(&self, claim: &Claim) -> Result<Renewal> {
        let (backend, claim) = (self.backend.clone(), claim.clone());
        self.pass("RENEW", Box::pin(async move { backend.renew(&claim).await })).await
    }

    async fn release(&self, claim: &Claim) -> Result<Released> {
        let (backend, claim) = (self.backend.clone(), claim.clone());
        self.pass("RELEASE", Box::pin(async move { backend.release(&claim).await })).await
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lock_core::{Name, Owner, memory::Memory};

    use super::*;
    use crate::asking::abandon;

    fn gated() -> (Link, Gate, Memory, Claim) {
        let (link, memory) = (Link::without_wire(), Memory::new());
        let gate = Gate::new(Arc::new(memory.clone()), &link);
        let claim = Claim::new(Name::new("x").unwrap(), Owner::random().unwrap(), Duration::from_secs(60));
        (link, gate, memory, claim)
    }

    #[tokio::test]
    async fn a_lost_reply_is_an_error_although_the_verb_was_done() {
        let (link, gate, memory, claim) = gated();
        link.lose_next_reply();
        assert_eq!(gate.acquire(&claim).await.unwrap_err().kind(), ErrorKind::Unavailable);
        assert_eq!(memory.names(), 1);
        assert!(matches!(gate.acquire(&claim).await.unwrap(), Attempt::Held(_)));
        assert_eq!((link.requests().of("ACQUIRE"), link.cuts()), (2, 1));
    }

    #[tokio::test]
    async fn what_is_down_does_nothing() {
        let (link, gate, memory, claim) = gated();
        link.down();
        assert!(gate.acquire(&claim).await.is_err());
        assert_eq!(memory.names(), 0);
        link.heal();
        gate.acquire(&claim).await.unwrap();
        assert_eq!(gate.release(&claim).await.unwrap(), Released::Released);
    }

    /// Timers that end in the same millisecond wake their tasks in any order.
    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn what_is_delayed_alike_arrives_in_order() {
        for _ in 0..300 {
            let (link, gate, memory, claim) = gated();
            link.delay(Way::ToServer, Duration::from_millis(1));
            abandon(gate.acquire(&claim));
            assert_eq!(gate.release(&claim).await.unwrap(), Released::Released);
            assert_eq!(memory.names(), 0);
        }
    }

    #[tokio::test]
    async fn what_was_sent_arrives_in_order_though_its_caller_gave_up() {
        let (link, gate, memory, claim) = gated();
        link.blackhole(Way::ToServer);
        let given_up = tokio::time::timeout(Duration::from_millis(10), gate.acquire(&claim)).await;
        assert!(given_up.is_err());
        assert_eq!(memory.names(), 0);
        let releasing = gate.release(&claim);
        let heal = async { link.heal() };
        let (released, ()) = tokio::join!(releasing, heal);
        assert_eq!(released.unwrap(), Released::Released);
        assert_eq!(memory.names(), 0);
    }
}
