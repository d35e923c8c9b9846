//! How a claim's node is made, found and deleted.

use std::sync::Arc;

use lock_core::{Claim, Moment};
use zookeeper_client::{CreateMode, Error};

use super::Session;
use crate::{claims::Node, error, place::Place};

/// How often a node is made whose parent vanishes each time.
const TRIES: usize = 100;

/// What was found of a claim.
pub(super) enum Seen {
    /// Its node, which this session owns, among its siblings.
    Own(Arc<Node>, Vec<String>),
    /// A node that another client's session owns, which claims for the same owner.
    Others(Node, Vec<String>),
    Gone,
}

impl Session {
    /// A node that was there before: whether it still is, as of a proof that the session lives.
    pub(super) async fn look_again(&self, place: &Place, node: Arc<Node>) -> Result<Seen, Error> {
        let (beat, seen) = (self.pulse.beat(&self.client), self.list(place, node));
        let (since, seen) = tokio::try_join!(beat.proven(), seen)?;
        if matches!(seen, Seen::Own(..)) && self.claims.keep(place, since).is_none() {
            // It ran out meanwhile.
            self.let_go(place).await?;
            return Ok(Seen::Gone);
        }
        Ok(seen)
    }

    pub(super) async fn list(&self, place: &Place, node: Arc<Node>) -> Result<Seen, Error> {
        let children = unless_missing(self.client.list_children(&place.directory).await)?;
        if children.contains(&node.name) {
            return Ok(Seen::Own(node, children));
        }
        self.claims.forget(place);
        Ok(Seen::Gone)
    }

    /// Looks for a claim's node by the claim's owner, which is all that is known after an unknown outcome.
    pub(super) async fn find(&self, place: &Arc<Place>) -> Result<Seen, Error> {
        let (beat, children) = (self.pulse.beat(&self.client), self.siblings(place));
        let (since, children) = tokio::try_join!(beat.proven(), children)?;
        self.sift(place, since, children).await
    }

    /// The claim's own node among the children, by its owner; what an earlier session of this client left is
    /// deleted.
    async fn sift(&self, place: &Arc<Place>, since: Moment, children: Vec<String>) -> Result<Seen, Error> {
        let (mut found, mut deleted) = (Seen::Gone, Vec::new());
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
                deleted.push(child);
            } else {
                found = Seen::Others(node, children.clone());
            }
        }
        match &mut found {
            // A claim does not wait for what it has left itself.
            Seen::Own(_, children) | Seen::Others(_, children) => {
                children.retain(|child| !deleted.contains(&child));
            }
            Seen::Gone => self.claims.forget(place),
        }
        Ok(found)
    }

    /// Makes the node and looks at the queue, in one round trip.
    pub(super) async fn create(&self, place: &Arc<Place>, claim: &Claim) -> Result<Seen, Error> {
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

            let parent = match parent {
                Some(parent) => parent.await.map(drop),
                None => Ok(()),
            };
            let (stat, number) = match (created.await, parent) {
                // Whoever may not make the parent may still use one that another has made just now.
                (Ok(created), _) => created,
                (Err(Error::NoNode), Ok(()) | Err(Error::NodeExists)) => {
                    has_parent = false;
                    continue;
                }
                (Err(Error::NoNode), Err(Error::NoNode)) => {
                    self.setup.make_root(client).await?;
                    continue;
                }
                (Err(Error::NoNode), Err(error)) | (Err(error), _) => return Err(self.refused(place, error)),
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
    pub(super) async fn siblings(&self, place: &Place) -> Result<Vec<String>, Error> {
        let synced = self.client.sync(&place.directory);
        let children = self.client.list_children(&place.directory);
        // If it fails, so does what comes after it; but some servers refuse it of what is not there.
        let _ = synced.await;
        unless_missing(children.await)
    }

    /// Whether there was any node of the claim.
    pub(super) async fn delete_all(&self, place: &Place, children: Vec<String>) -> Result<bool, Error> {
        let mut any = false;
        for child in children.iter().filter(|child| child.starts_with(&place.prefix)) {
            any |= unless_gone(self.client.delete(&place.child(child), None).await)?;
        }
        Ok(any)
    }

    /// Whether it was there.
    pub(super) async fn delete(&self, node: &Node) -> Result<bool, Error> {
        unless_gone(self.client.delete(&node.path, None).await)
    }

    fn is_own(&self, session: i64) -> bool {
        self.setup.own.contains(session)
    }
}

fn token(czxid: i64) -> u64 {
    // Transaction numbers are positive until 2^31 leaders have been elected.
    u64::try_from(czxid).unwrap_or(0)
}

/// A directory that is not there has no children.
pub(super) fn unless_missing(children: Result<Vec<String>, Error>) -> Result<Vec<String>, Error> {
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
