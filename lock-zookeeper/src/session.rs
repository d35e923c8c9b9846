use std::{
    collections::HashSet,
    fmt,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use lock_core::{Attempt, Busy, Claim, Doubt, FencingToken, Grant, Lease, Moment, Released, Renewal, Wake};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use zookeeper_client::{
    Acls, Client, CreateMode, Error, EventType, OneshotWatcher, SessionState, StateWatcher,
};

use crate::{
    claims::{Claims, Known, Node},
    dial::Dialer,
    error,
    place::{Place, Root},
    pulse::Pulse,
    queue::{Position, position},
    reaper,
    vigil::Vigil,
};

/// How often a node is made whose parent vanishes each time.
const TRIES: usize = 100;

/// One session on the server, and the claims that it keeps alive.
///
/// Its requests share one connection and are answered in order; the driver sends each when the method is
/// called. So what is asked right after a write is asked of a server that has seen the write.
pub(crate) struct Session {
    client: Client,
    claims: Arc<Claims>,
    pulse: Pulse,
    setup: Arc<Setup>,
    /// What every lease is long.
    length: Duration,
    /// The server has said, to another session, that this one is over.
    over: CancellationToken,
    _tasks: [AbortOnDropHandle<()>; 2],
}

/// What all sessions of a backend share.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) root: Root,
    pub(crate) acls: Acls<'static>,
    pub(crate) doubt: Doubt,
    /// The numbers of all sessions so far: what they leave behind is this backend's to delete.
    pub(crate) own: Mutex<HashSet<i64>>,
}

impl Setup {
    async fn make_root(&self, client: &Client) -> Result<(), Error> {
        let Some(root) = self.root.path() else { return Ok(()) };
        client.mkdir(root, &CreateMode::Persistent.with_acls(self.acls)).await
    }
}

/// What was found of a claim.
enum Seen {
    /// Its node, which this session owns, among its siblings.
    Own(Arc<Node>, Vec<String>),
    /// A node that another client's session owns, which claims for the same owner.
    Others(Node, Vec<String>),
    Gone,
}

impl Session {
    /// Looks after a new session; to be called in a runtime.
    pub(crate) async fn start(client: Client, dialer: Arc<Dialer>) -> Result<Arc<Self>, Error> {
        let (setup, length) = (dialer.setup().clone(), client.session_timeout() * 2 / 3);
        let id = client.session_id().0;
        setup.own.lock().unwrap_or_else(PoisonError::into_inner).insert(id);
        let pulse = Pulse::new(setup.root.pulse(id), setup.acls, client.session_timeout());
        if let Err(error) = pulse.start(&client).await {
            if error != Error::NoNode {
                return Err(error);
            }
            setup.make_root(&client).await?;
            pulse.start(&client).await?;
        }
        let claims = Arc::new(Claims::new(length));
        let over = CancellationToken::new();
        let vigil = Vigil {
            states: client.state_watcher(),
            dialer,
            pulse: setup.root.pulse(id),
            patience: length / 6,
            over: over.clone(),
            doubt: setup.doubt.clone(),
        };
        Ok(Arc::new_cyclic(|session: &Weak<Self>| {
            let reaping = tokio::spawn(reaper::reap(claims.clone(), session.clone()));
            let watching = tokio::spawn(vigil.keep());
            let _tasks = [AbortOnDropHandle::new(reaping), AbortOnDropHandle::new(watching)];
            Self { client, claims, pulse, setup, length, over, _tasks }
        }))
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.is_cancelled() || self.client.state().is_terminated()
    }

    /// Whether it keeps a claim, or may do so.
    pub(crate) fn knows(&self, place: &Place) -> bool {
        self.claims.knows(place)
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.claims.is_empty()
    }

    pub(crate) async fn acquire(
        self: &Arc<Self>,
        place: &Arc<Place>,
        claim: &Claim,
    ) -> Result<Attempt, Error> {
        self.connected().await?;
        let mut seen = match self.claims.look(place) {
            Known::Nothing => Seen::Gone,
            Known::Perhaps => self.find(place).await?,
            Known::Node(node) => self.look_again(place, node).await?,
            Known::Leaving(_) => {
                self.let_go(place).await?;
                Seen::Gone
            }
        };
        loop {
            let (node, children) = match seen {
                Seen::Gone => {
                    seen = self.create(place, claim).await?;
                    continue;
                }
                Seen::Others(node, children) => return Ok(another_client(&node, &children, claim)),
                Seen::Own(node, children) => (node, children),
            };
            match position(&children, &node.name) {
                None => {
                    self.claims.forget(place);
                    seen = Seen::Gone;
                }
                Some(Position::First) => return Ok(Attempt::Held(self.grant(place, &node)?)),
                Some(Position::Behind { .. }) if !claim.queue => {
                    self.delete(&node).await?;
                    self.claims.forget(place);
                    return Ok(Attempt::Busy(busy(None, claim)));
                }
                Some(Position::Behind { predecessor, next }) => {
                    let path = place.child(predecessor);
                    let (there, watcher) = self.client.check_and_watch_stat(&path).await?;
                    if there.is_some() {
                        let wake = self.clone().wake(watcher, next, place.clone(), node);
                        return Ok(Attempt::Busy(busy(Some(wake), claim)));
                    }
                    // It went before it was watched.
                    seen = self.list(place, node).await?;
                }
            }
        }
    }

    pub(crate) async fn renew(&self, place: &Arc<Place>) -> Result<Renewal, Error> {
        self.connected().await?;
        let node = match self.claims.look(place) {
            Known::Node(node) => node,
            Known::Leaving(_) => {
                self.let_go(place).await?;
                return Ok(Renewal::Lost);
            }
            Known::Perhaps | Known::Nothing => match self.find(place).await? {
                Seen::Gone => return Ok(Renewal::Lost),
                Seen::Own(node, _) => node,
                Seen::Others(..) => return Ok(Renewal::Kept(Lease::new(Moment::now(), Duration::ZERO))),
            },
        };
        if !self.claims.is_held(place) {
            // It may only wait. Nobody renews what waits, but for those who were told of it by others.
            let Seen::Own(_, children) = self.look_again(place, node.clone()).await? else {
                return Ok(Renewal::Lost);
            };
            if position(&children, &node.name) != Some(Position::First) {
                return Ok(Renewal::Lost);
            }
            self.claims.hold(place, &node);
        }
        let Some(since) = self.is_still_there(place, &node).await? else { return Ok(Renewal::Lost) };
        let since = self.claims.keep(place, since).ok_or(Error::Timeout)?;
        Ok(Renewal::Kept(Lease::new(since, self.length)))
    }

    pub(crate) async fn release(&self, place: &Arc<Place>) -> Result<Released, Error> {
        self.connected().await?;
        let gone = match self.claims.look(place) {
            Known::Node(node) | Known::Leaving(Some(node)) => self.delete(&node).await?,
            Known::Perhaps | Known::Nothing | Known::Leaving(None) => {
                let children = self.siblings(place).await?;
                self.delete_all(place, children).await?
            }
        };
        self.claims.forget(place);
        Ok(if gone { Released::Released } else { Released::Absent })
    }

    /// Deletes the node of a claim that ran out.
    pub(crate) async fn let_go(&self, place: &Place) -> Result<(), Error> {
        self.connected().await?;
        if let Known::Leaving(Some(node)) = self.claims.look(place) {
            self.delete(&node).await?;
        } else {
            let asked = self.claims.while_leaving(place, || {
                (self.client.sync(&place.directory), self.client.list_children(&place.directory))
            });
            let Some((synced, children)) = asked else { return Ok(()) };
            let _ = synced.await;
            self.delete_all(place, unless_missing(children.await)?).await?;
        }
        self.claims.left(place);
        Ok(())
    }
}

impl Session {
    /// Waits until there is a connection, so that nothing is sent long after it was given up.
    async fn connected(&self) -> Result<(), Error> {
        let mut watcher: Option<StateWatcher> = None;
        let mut state = self.client.state();
        loop {
            match state {
                SessionState::SyncConnected | SessionState::ConnectedReadOnly => return Ok(()),
                SessionState::Disconnected => {}
                SessionState::AuthFailed => return Err(Error::AuthFailed),
                SessionState::Expired | SessionState::Closed => return Err(Error::SessionExpired),
            }
            state = match &mut watcher {
                Some(watcher) => tokio::select! {
                    state = watcher.changed() => state,
                    () = self.over.cancelled() => SessionState::Expired,
                },
                None => watcher.insert(self.client.state_watcher()).state(),
            };
        }
    }

    /// A node that was there before: whether it still is, as of a proof that the session lives.
    async fn look_again(&self, place: &Place, node: Arc<Node>) -> Result<Seen, Error> {
        let (beat, seen) = (self.pulse.beat(&self.client), self.list(place, node));
        let (since, seen) = tokio::try_join!(beat.proven(), seen)?;
        if matches!(seen, Seen::Own(..)) && self.claims.keep(place, since).is_none() {
            // It ran out meanwhile.
            self.let_go(place).await?;
            return Ok(Seen::Gone);
        }
        Ok(seen)
    }

    async fn list(&self, place: &Place, node: Arc<Node>) -> Result<Seen, Error> {
        let children = unless_missing(self.client.list_children(&place.directory).await)?;
        if children.contains(&node.name) {
            return Ok(Seen::Own(node, children));
        }
        self.claims.forget(place);
        Ok(Seen::Gone)
    }

    /// Looks for a claim's node by the claim's owner, which is all that is known after an unknown outcome.
    async fn find(&self, place: &Arc<Place>) -> Result<Seen, Error> {
        let (beat, children) = (self.pulse.beat(&self.client), self.siblings(place));
        let (since, children) = tokio::try_join!(beat.proven(), children)?;
        self.sift(place, since, children).await
    }

    /// The claim's own node among the children, by its owner; what an earlier session of this client left is
    /// deleted.
    async fn sift(&self, place: &Arc<Place>, since: Moment, children: Vec<String>) -> Result<Seen, Error> {
        let mut found = Seen::Gone;
        for child in children.iter().filter(|child| child.starts_with(&place.prefix)) {
            let path = place.child(child);
            let Some(stat) = self.client.check_stat(&path).await? else { continue };
            let node = Node { name: child.clone(), path, token: token(stat.czxid) };
            if stat.ephemeral_owner == self.client.session_id().0 {
                let node = Arc::new(node);
                self.claims.found(place, node.clone(), since);
                if self.claims.keep(place, since).is_none() {
                    return Err(Error::Timeout);
                }
                found = Seen::Own(node, children.clone());
            } else if self.is_own(stat.ephemeral_owner) {
                self.delete(&node).await?;
            } else {
                found = Seen::Others(node, children.clone());
            }
        }
        if matches!(found, Seen::Gone) {
            self.claims.forget(place);
        }
        Ok(found)
    }

    /// Makes the node and looks at the queue, in one round trip.
    async fn create(&self, place: &Arc<Place>, claim: &Claim) -> Result<Seen, Error> {
        let client = &self.client;
        let container = CreateMode::Container.with_acls(self.setup.acls);
        let ephemeral = CreateMode::EphemeralSequential.with_acls(self.setup.acls);
        let mut has_parent = true;
        let since = Moment::now();
        for _ in 0..TRIES {
            self.claims.begin(place, since);
            let parent = (!has_parent).then(|| client.create(&place.directory, b"", &container));
            let created = client.create(&place.path, claim.label.as_bytes(), &ephemeral);
            let children = client.list_children(&place.directory);

            if let Some(parent) = parent {
                match parent.await {
                    Ok(_) | Err(Error::NodeExists) => {}
                    Err(Error::NoNode) => {
                        self.setup.make_root(client).await?;
                        continue;
                    }
                    Err(error) => return Err(self.refused(place, error)),
                }
            }
            let (stat, number) = match created.await {
                Ok(created) => created,
                Err(Error::NoNode) => {
                    has_parent = false;
                    continue;
                }
                Err(error) => return Err(self.refused(place, error)),
            };
            let (name, path) = (format!("{}{number}", place.prefix), format!("{}{number}", place.path));
            let node = Arc::new(Node { name, path, token: token(stat.czxid) });
            self.claims.found(place, node.clone(), since);
            let children = unless_missing(children.await)?;
            return self.without_twin(place, node, children).await;
        }
        Err(Error::UnexpectedError(format!("{} is deleted as often as it is made", place.directory)))
    }

    /// A node of the same owner that is older than the one just made is the claim's.
    async fn without_twin(
        &self,
        place: &Place,
        node: Arc<Node>,
        mut children: Vec<String>,
    ) -> Result<Seen, Error> {
        let is_twin = |child: &String| child.starts_with(&place.prefix) && *child != node.name;
        while let Some(index) = children.iter().position(is_twin) {
            let path = place.child(&children[index]);
            if let Some(stat) = self.client.check_stat(&path).await? {
                let twin = Node { name: children[index].clone(), path, token: token(stat.czxid) };
                if !self.is_own(stat.ephemeral_owner) {
                    self.delete(&node).await?;
                    self.claims.forget(place);
                    children.retain(|child| *child != node.name);
                    return Ok(Seen::Others(twin, children));
                }
                // It is from a session that is over, and would go with it.
                self.delete(&twin).await?;
            }
            children.swap_remove(index);
        }
        Ok(Seen::Own(node, children))
    }

    fn refused(&self, place: &Place, error: Error) -> Error {
        if error::is_refusal(&error) {
            self.claims.forget(place);
        }
        error
    }

    /// All children of the claim's directory, as the leader knows them by now.
    async fn siblings(&self, place: &Place) -> Result<Vec<String>, Error> {
        let synced = self.client.sync(&place.directory);
        let children = self.client.list_children(&place.directory);
        // If it fails, so does what comes after it; but some servers refuse it of what is not there.
        let _ = synced.await;
        unless_missing(children.await)
    }

    /// Whether there was any node of the claim.
    async fn delete_all(&self, place: &Place, children: Vec<String>) -> Result<bool, Error> {
        let mut any = false;
        for child in children.iter().filter(|child| child.starts_with(&place.prefix)) {
            any |= unless_gone(self.client.delete(&place.child(child), None).await)?;
        }
        Ok(any)
    }

    /// Whether it was there.
    async fn delete(&self, node: &Node) -> Result<bool, Error> {
        unless_gone(self.client.delete(&node.path, None).await)
    }

    /// Whether the node of a held claim is there; if so, as of when that is proven.
    ///
    /// A watch that was set before the write and has not fired by its answer is as good as a look.
    async fn is_still_there(&self, place: &Place, node: &Node) -> Result<Option<Moment>, Error> {
        if self.claims.is_quiet(place) {
            let since = self.pulse.beat(&self.client).proven().await?;
            if self.claims.is_quiet(place) {
                return Ok(Some(since));
            }
        }
        let beat = self.pulse.beat(&self.client);
        let look = self.client.check_and_watch_stat(&node.path);
        let (since, (stat, watcher)) = tokio::try_join!(beat.proven(), look)?;
        if stat.is_none() {
            self.claims.forget(place);
            return Ok(None);
        }
        self.claims.watch(place, Box::pin(watcher.changed()));
        Ok(Some(since))
    }

    fn grant(&self, place: &Place, node: &Node) -> Result<Grant, Error> {
        // If it ran out while it was looked at, its node is being deleted.
        let since = self.claims.hold(place, node).ok_or(Error::Timeout)?;
        let lease = Lease::new(since, self.length);
        Ok(Grant::new(FencingToken::new(node.token), lease).with_doubt(self.setup.doubt.signal()))
    }

    /// Resolves when the predecessor is gone. If nobody else stood before it, the claim holds then, on the
    /// lease that it had in the queue.
    fn wake(
        self: Arc<Self>,
        watcher: OneshotWatcher,
        next: bool,
        place: Arc<Place>,
        node: Arc<Node>,
    ) -> Wake {
        Box::pin(async move {
            let event = watcher.changed().await;
            let promoted = next && event.event_type == EventType::NodeDeleted;
            promoted.then(|| self.grant(&place, &node).ok()).flatten()
        })
    }

    fn is_own(&self, session: i64) -> bool {
        self.setup.own.lock().unwrap_or_else(PoisonError::into_inner).contains(&session)
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("id", &self.client.session_id())
            .field("length", &self.length)
            .field("claims", &self.claims)
            .finish_non_exhaustive()
    }
}

/// A claim whose node another client made: this one cannot keep it alive, so it promises no time.
fn another_client(node: &Node, children: &[String], claim: &Claim) -> Attempt {
    match position(children, &node.name) {
        Some(Position::First) => {
            let lease = Lease::new(Moment::now(), Duration::ZERO);
            Attempt::Held(Grant::new(FencingToken::new(node.token), lease))
        }
        _ => Attempt::Busy(busy(None, claim)),
    }
}

/// The place in the queue has a lease of its own, so ask again well before that is over.
fn busy(wake: Option<Wake>, claim: &Claim) -> Busy {
    Busy::new(wake, claim.lease / 3)
}

fn token(czxid: i64) -> u64 {
    // Transaction numbers are positive until 2^31 leaders have been elected.
    u64::try_from(czxid).unwrap_or(0)
}

/// A directory that is not there has no children.
fn unless_missing(children: Result<Vec<String>, Error>) -> Result<Vec<String>, Error> {
    match children {
        Err(Error::NoNode) => Ok(Vec::new()),
        other => other,
    }
}

fn unless_gone(deleted: Result<(), Error>) -> Result<bool, Error> {
    match deleted {
        Ok(()) => Ok(true),
        Err(Error::NoNode) => Ok(false),
        Err(error) => Err(error),
    }
}
