use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use lock_core::{Moment, Owner};
use redis::Value;
use tokio::sync::watch;

/// The waiters of one connection, each with a rope to its bell. What the server pushes on the connection's
/// one channel names the claim that was handed the lock.
///
/// `None` once the connection is gone, which wakes everybody: what was pushed meanwhile is lost.
#[derive(Clone)]
pub(crate) struct Bells {
    name: Arc<str>,
    ropes: Arc<Mutex<Option<Ropes>>>,
}

/// By claim: `owner:` and the key of its lock.
type Ropes = HashMap<String, watch::Sender<Option<Promotion>>>;

/// What the server tells of a claim that was handed the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Promotion {
    pub(crate) token: u64,
    /// How long the server keeps it, in milliseconds.
    pub(crate) left: u64,
    /// When this process was told.
    pub(crate) heard: Moment,
}

/// Hears that its claim was handed the lock, or that the connection is gone.
pub(crate) struct Ear {
    bells: Bells,
    claim: String,
    /// Taken only by `drop`.
    rope: Option<watch::Receiver<Option<Promotion>>>,
}

impl Bells {
    /// Bells named by a number that nobody else has drawn.
    pub(crate) fn new(random: Owner) -> Self {
        Self { name: random.to_hex().into(), ropes: Arc::new(Mutex::new(Some(HashMap::new()))) }
    }

    /// What the server knows them by.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Listens for a claim, which is `owner:` and the key of its lock.
    pub(crate) fn ear(&self, claim: String) -> Ear {
        let listen = |ropes: &mut Ropes| match ropes.get(&claim) {
            Some(rope) => rope.subscribe(),
            None => {
                let (rope, ear) = watch::channel(None);
                ropes.insert(claim.clone(), rope);
                ear
            }
        };
        let rope = self.with(listen).unwrap_or_else(|| watch::channel(None).1);
        Ear { bells: self.clone(), claim, rope: Some(rope) }
    }

    /// Passes on what the server pushed.
    pub(crate) fn ring(&self, message: &[Value]) {
        let Some((promotion, claim)) = promotion(message) else { return };
        self.with(|ropes| ropes.get(claim).map(|rope| rope.send_replace(Some(promotion))));
    }

    /// Wakes everybody, for good.
    pub(crate) fn take_down(&self) {
        self.ropes.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    fn with<T>(&self, f: impl FnOnce(&mut Ropes) -> T) -> Option<T> {
        self.ropes.lock().unwrap_or_else(PoisonError::into_inner).as_mut().map(f)
    }
}

impl Ear {
    /// What the server is told to ring.
    pub(crate) fn bell(&self) -> &str {
        self.bells.name()
    }

    /// The promotion that came after another claim's grant with this token. `None` when the connection is
    /// gone.
    ///
    /// An older one may still be on its way here: of a lease that has run out since.
    pub(crate) async fn promoted_after(mut self, token: u64) -> Option<Promotion> {
        let newer = |told: &Option<Promotion>| told.is_some_and(|promotion| promotion.token > token);
        let told = self.rope.as_mut()?.wait_for(newer).await;
        told.ok().and_then(|told| *told)
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        let Self { bells, claim, rope } = self;
        bells.with(|ropes| {
            rope.take();
            if ropes.get(claim).is_some_and(watch::Sender::is_closed) {
                ropes.remove(claim);
            }
        });
    }
}

/// Reads `[channel, "token:left:owner:key"]`.
fn promotion(message: &[Value]) -> Option<(Promotion, &str)> {
    let [_, Value::BulkString(text)] = message else { return None };
    let (token, rest) = std::str::from_utf8(text).ok()?.split_once(':')?;
    let (left, claim) = rest.split_once(':')?;
    let (token, left) = (token.parse().ok()?, left.parse().ok()?);
    Some((Promotion { token, left, heard: Moment::now() }, claim))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn message(text: &str) -> [Value; 2] {
        [Value::BulkString(b"polylock:wake:0".into()), Value::BulkString(text.into())]
    }

    fn ropes(bells: &Bells) -> usize {
        bells.with(|ropes| ropes.len()).unwrap()
    }

    #[tokio::test]
    async fn only_the_claim_that_was_promoted_hears_it() {
        let bells = Bells::new(Owner::random().unwrap());
        let [ours, other] = ["aa:polylock:{x:y}", "bb:polylock:{x:y}"].map(|claim| bells.ear(claim.into()));
        bells.ring(&message("17:29000:aa:polylock:{x:y}"));
        let told = ours.promoted_after(16).await.unwrap();
        assert_eq!((told.token, told.left), (17, 29_000));
        let mut deaf = std::pin::pin!(other.promoted_after(0));
        assert!(tokio::time::timeout(Duration::from_millis(5), &mut deaf).await.is_err());
    }

    #[tokio::test]
    async fn a_promotion_from_before_the_look_is_not_heard() {
        let bells = Bells::new(Owner::random().unwrap());
        let ear = bells.ear("aa:x".into());
        bells.ring(&message("5:100:aa:x"));
        let mut promoted = std::pin::pin!(ear.promoted_after(6));
        assert!(tokio::time::timeout(Duration::from_millis(5), &mut promoted).await.is_err());
        bells.ring(&message("7:100:aa:x"));
        assert_eq!(promoted.await.unwrap().token, 7);
    }

    #[tokio::test]
    async fn the_end_of_a_connection_wakes_those_who_listen_and_those_who_come_late() {
        let bells = Bells::new(Owner::random().unwrap());
        let early = bells.ear("aa:x".into());
        bells.take_down();
        assert_eq!(early.promoted_after(0).await, None);
        assert_eq!(bells.ear("aa:x".into()).promoted_after(0).await, None);
    }

    #[test]
    fn a_rope_is_there_as_long_as_somebody_listens() {
        let bells = Bells::new(Owner::random().unwrap());
        let (one, two) = (bells.ear("aa:x".into()), bells.ear("aa:x".into()));
        assert_eq!(ropes(&bells), 1);
        drop(one);
        assert_eq!(ropes(&bells), 1);
        drop(two);
        assert_eq!(ropes(&bells), 0);
    }

    #[test]
    fn what_is_no_promotion_is_ignored() {
        for text in ["", "x", "1:2", "x:1:aa:k", "1:x:aa:k", "-1:1:aa:k"] {
            assert_eq!(promotion(&message(text)), None, "{text}");
        }
    }
}
