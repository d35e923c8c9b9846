use std::{sync::Arc, time::Duration};

use lock_core::Doubt;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};
use zookeeper_client::{SessionState, StateWatcher};

use crate::dial::Dialer;

/// What looks after one session from outside.
pub(crate) struct Vigil {
    pub(crate) states: StateWatcher,
    pub(crate) dialer: Arc<Dialer>,
    /// The node that is there for as long as the session lives.
    pub(crate) pulse: String,
    /// How long a session may be without a connection before others are asked about it.
    pub(crate) patience: Duration,
    pub(crate) over: CancellationToken,
    pub(crate) doubt: Doubt,
}

impl Vigil {
    /// Raises a doubt when the session has a connection again after it had none, and when it is over.
    ///
    /// A server that lost its data, or was set back to an older state, does not even let the session's client
    /// in to tell it; so while there is no connection, another session looks for the pulse of this one.
    pub(crate) async fn keep(mut self) {
        let mut connected = true;
        loop {
            let state = tokio::select! {
                state = self.states.changed() => state,
                () = tokio::time::sleep(self.patience), if !connected => {
                    if self.is_gone().await {
                        warn!(pulse = self.pulse, "the server knows the session no more");
                        self.over.cancel();
                        self.doubt.raise();
                        return;
                    }
                    continue;
                }
            };
            connected = state != SessionState::Disconnected;
            if connected {
                self.doubt.raise();
            }
            if state.is_terminated() {
                return;
            }
        }
    }

    async fn is_gone(&self) -> bool {
        match self.dialer.is_there(&self.pulse).await {
            Ok(there) => !there && self.states.peek_state() == SessionState::Disconnected,
            Err(error) => {
                debug!(%error, "nobody can be asked about the session");
                false
            }
        }
    }
}
