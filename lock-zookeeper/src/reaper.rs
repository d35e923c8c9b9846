use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use lock_core::Moment;
use tracing::{debug, warn};

use crate::{claims::Claims, error, place::Place, session::Session};

/// The pause before a deletion that was not answered is tried again.
const PAUSE: Duration = Duration::from_millis(100);

/// Ends the claims that nobody keeps any more, for as long as the session lives.
///
/// A session keeps the nodes of all its claims alive. So the lease of each is counted here, by the local
/// clock; and a node that nobody waits for any more is deleted however long that takes. One that this user may
/// not delete any more is left to the end of the session, so that it keeps the others from nothing.
pub(crate) async fn reap(claims: Arc<Claims>, session: Weak<Session>) {
    loop {
        let added = claims.added.notified();
        let (over, next) = claims.run_out(Moment::now());
        if !over.is_empty() {
            let Some(session) = session.upgrade() else { return };
            for place in over {
                if !delete(&session, &place).await {
                    return;
                }
            }
            continue;
        }
        match next {
            Some(next) => tokio::time::sleep(next.saturating_since(Moment::now())).await,
            None => added.await,
        }
    }
}

/// Deletes until the server answers, be it with a refusal; `false` if the session has ended, which deletes it too.
async fn delete(session: &Session, place: &Place) -> bool {
    debug!(path = place.path, "the lease of a claim is over");
    loop {
        match session.let_go(place).await {
            Ok(()) => return true,
            Err(failure) if error::is_end(&failure) => return false,
            Err(failure) if error::is_refusal(&failure) => {
                warn!(path = place.path, %failure, "not deleted; its session will end it");
                return true;
            }
            Err(failure) => {
                debug!(path = place.path, %failure, "not deleted yet");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}
