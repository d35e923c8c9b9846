mod nodes;
mod waiting;

use std::{
    fmt,
    sync::{Arc, Weak},
    time::Duration,
};

use lock_core::{Attempt, Busy, Claim, Doubt, FencingToken, Grant, Lease, Moment, Released, Renewal, Wake};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use zookeeper_client::{Acls, Client, CreateMode, Error, SessionState, StateWatcher};

use nodes::{Seen, unless_missing};

use crate::{
    ahead::{Change, Shared},
    claims::{Claims, Known, Node},
    dial::Dialer,
    error,
    own::{Membership, Own},
    place::{Place, Root},
    pulse::Pulse,
    queue::{Position, position},
    reaper,
    vigil::Vigil,
};

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
    _membership: Membership,
}

/// What all sessions of a backend share.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) root: Root,
    pub(crate) acls: Acls<'static>,
    pub(crate) doubt: Doubt,
    pub(crate) own: Arc<Own>,
}

impl Setup {
    async fn make_root(&self, client: &Client) -> Result<(), Error> {
        let Some(root) = self.root.path() else { return Ok(()) };
        client.mkdir(root, &CreateMode::Persistent.with_acls(self.acls)).await
    }
}

impl Session {
    /// Looks after a new session; to be called in a runtime.
    pub(crate) async fn start(client: Client, dialer: Arc<Dialer>) -> Result<Arc<Self>, Error> {
        let (setup, length) = (dialer.setup().clone(), client.session_timeout() * 2 / 3);
        let id = client.session_id().0;
        let membership = setup.own.join(id, client.session_timeout());
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
            Self { client, claims, pulse, setup, length, over, _tasks, _membership: membership }
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

    /// A refusal is the word that nothing of the claim is there; so what is goes first.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        place: &Arc<Place>,
        claim: &Claim,
    ) -> Result<Attempt, Error> {
        match self.attempt(place, claim).await {
            Err(refusal) if error::is_refusal(&refusal) && self.claims.knows(place) => {
                Err(self.take_back(place, claim, refusal).await)
            }
            answer => answer,
        }
    }

    async fn attempt(self: &Arc<Self>, place: &Arc<Place>, claim: &Claim) -> Result<Attempt, Error> {
        self.connected().await?;
        let mut seen = match self.claims.look(place) {
            Known::Nothing => Seen::Gone,
            Known::Perhaps => self.find(place).await?,
            Known::Node(node) => {
                if claim.queue
                    && let Some(ahead) = self.still_waits(place).await?
                {
                    let wake = self.clone().wake(ahead, place.clone(), node);
                    return Ok(Attempt::Busy(busy(Some(wake), claim)));
                }
                self.look_again(place, node).await?
            }
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
                Some(Position::Behind { predecessor, second }) => {
                    if let Some(ahead) = self.watch_queue(place, &node, predecessor, second).await? {
                        let wake = self.clone().wake(ahead, place.clone(), node);
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
        let (beat, look) = (self.pulse.beat(&self.client), self.watch(&node.path));
        let (since, watch) = tokio::try_join!(beat.proven(), look)?;
        let Some(watch) = watch else {
            self.claims.forget(place);
            return Ok(None);
        };
        self.claims.watch(place, watch);
        Ok(Some(since))
    }

    /// Ends a claim whose node is there, or may be, though a later request for it was refused. What to say of
    /// it: the refusal, unless something may be left that core does not know of.
    async fn take_back(&self, place: &Arc<Place>, claim: &Claim, refusal: Error) -> Error {
        match self.release(place).await {
            Err(end) if error::is_end(&end) => end,
            Err(failure) if claim.fresh => {
                Error::UnexpectedError(format!("{refusal}, and the node is left behind: {failure}"))
            }
            _ => refusal,
        }
    }

    fn grant(&self, place: &Place, node: &Node) -> Result<Grant, Error> {
        // If it ran out while it was looked at, its node is being deleted.
        let since = self.claims.hold(place, node).ok_or(Error::Timeout)?;
        let lease = Lease::new(since, self.length);
        Ok(Grant::new(FencingToken::new(node.token), lease).with_doubt(self.setup.doubt.signal()))
    }

    /// Resolves when the claim should ask again; with a grant if it certainly is the first by now, on the lease
    /// that it had in the queue.
    fn wake(self: Arc<Self>, ahead: Shared, place: Arc<Place>, node: Arc<Node>) -> Wake {
        Box::pin(async move {
            let mut ahead = ahead.lock().await;
            loop {
                match ahead.changed().await {
                    // Unless somebody has deleted its own node.
                    Change::Free if self.claims.is_quiet(&place) => return self.grant(&place, &node).ok(),
                    Change::Free | Change::Unclear => return None,
                    Change::Closer => self.come_closer(&place, &node, &mut ahead).await.ok()??,
                }
            }
        })
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
