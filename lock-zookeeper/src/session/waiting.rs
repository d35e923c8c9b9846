//! How a claim in the queue learns that it is the first.

use std::sync::Arc;

use tokio::sync::Mutex;
use zookeeper_client::Error;

use super::{Session, nodes::unless_missing};
use crate::{
    ahead::{Ahead, Shared, Watch},
    claims::Node,
    place::Place,
    queue::{Position, position},
};

impl Session {
    /// Watches the two before the claim, and its own node, in one round trip. `None` if the nearest is gone.
    pub(super) async fn watch_queue(
        &self,
        place: &Place,
        node: &Node,
        predecessor: &str,
        second: Option<&str>,
    ) -> Result<Option<Shared>, Error> {
        let own = (!self.claims.is_quiet(place)).then(|| self.watch(&node.path));
        let nearest = self.watch(&place.child(predecessor));
        let second = second.map(|second| self.watch(&place.child(second)));

        if let Some(own) = own {
            let Some(own) = own.await? else { return Ok(None) };
            self.claims.watch(place, own);
        }
        let Some(nearest) = nearest.await? else { return Ok(None) };
        let mut ahead = Ahead::new(predecessor.to_owned(), nearest);
        match second {
            None => ahead.closer(None),
            Some(second) => match second.await? {
                Some(second) => ahead.closer(Some(second)),
                None => {
                    if self.come_closer(place, node, &mut ahead).await?.is_none() {
                        return Ok(None);
                    }
                }
            },
        }
        let ahead = Arc::new(Mutex::new(ahead));
        self.claims.wait(place, ahead.clone());
        Ok(Some(ahead))
    }

    /// Sends a look at a node that sets a watch on it; it leaves none if the node is gone.
    pub(super) fn watch(
        &self,
        path: &str,
    ) -> impl Future<Output = Result<Option<Watch>, Error>> + Send + '_ + use<'_> {
        let data = self.client.get_and_watch_data(path);
        async move {
            match data.await {
                Ok((_, _, watcher)) => Ok(Some(Watch::new(watcher))),
                Err(Error::NoNode) => Ok(None),
                Err(error) => Err(error),
            }
        }
    }

    /// Keeps the claim in the queue for a further lease. `None` if its place there has to be looked at.
    ///
    /// Watches that have not fired by the answer to a write are as good as a look, and cost nothing.
    pub(super) async fn still_waits(&self, place: &Place) -> Result<Option<Shared>, Error> {
        let Some(ahead) = self.claims.ahead(place) else { return Ok(None) };
        // While another waits for it, it is not known.
        let is_quiet = || self.claims.is_quiet(place) && ahead.try_lock().is_ok_and(|mut it| it.is_quiet());
        if !is_quiet() {
            return Ok(None);
        }
        let since = self.pulse.beat(&self.client).proven().await?;
        let waits = is_quiet() && self.claims.keep(place, since).is_some();
        Ok(waits.then_some(ahead))
    }

    /// Looks who stands before the nearest, which is still watched. `None` if that one is gone, too.
    pub(super) async fn come_closer(
        &self,
        place: &Place,
        node: &Node,
        ahead: &mut Ahead,
    ) -> Result<Option<()>, Error> {
        loop {
            let children = unless_missing(self.client.list_children(&place.directory).await)?;
            let second = match position(&children, &node.name) {
                Some(Position::Behind { predecessor, second }) if predecessor == ahead.nearest => second,
                _ => return Ok(None),
            };
            let watch = match second {
                None => None,
                Some(second) => match self.watch(&place.child(second)).await? {
                    None => continue,
                    watch => watch,
                },
            };
            ahead.closer(watch);
            return Ok(Some(()));
        }
    }
}
