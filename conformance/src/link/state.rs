use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::sync::{oneshot, watch};

use super::{Requests, Way};

/// What cases set and links obey.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) state: watch::Sender<State>,
    pub(super) requests: watch::Sender<Requests>,
    /// Hears when the request that was sent last has passed, where there is no wire to keep the order.
    last: Mutex<Option<oneshot::Receiver<()>>>,
}

/// A request's place among those that were sent. Dropping it lets the next one pass.
#[derive(Debug)]
pub(super) struct Place {
    before: Option<oneshot::Receiver<()>>,
    _passed: oneshot::Sender<()>,
}

impl Place {
    /// Waits until all that were sent before have passed, or were lost.
    pub(super) async fn turn(&mut self) {
        if let Some(before) = self.before.take() {
            // Its sender says nothing but that it is gone.
            let _ = before.await;
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct State {
    pub(super) to_server: Flow,
    pub(super) to_client: Flow,
    pub(super) refusing: bool,
    pub(super) cuts: u64,
    /// The next request's reply is to be lost.
    pub(super) lose_reply: bool,
    /// That request has passed: the next word from the server is it.
    pub(super) losing: bool,
    pub(super) cut_after: Option<u64>,
    pub(super) hold_from: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Flow {
    pub(super) held: bool,
    pub(super) delay: Duration,
}

impl State {
    pub(super) fn flow(&self, way: Way) -> Flow {
        if way == Way::ToServer { self.to_server } else { self.to_client }
    }

    pub(super) fn flows(&mut self, way: Way, mut change: impl FnMut(&mut Flow)) {
        if way != Way::ToClient {
            change(&mut self.to_server);
        }
        if way != Way::ToServer {
            change(&mut self.to_client);
        }
    }

    pub(super) fn cut(&mut self) {
        self.cuts += 1;
        (self.lose_reply, self.losing, self.cut_after) = (false, false, None);
    }

    pub(super) fn heal(&mut self) {
        *self = Self { cuts: self.cuts, ..Self::default() };
    }

    /// Whether everything passes as if there were no link.
    pub(super) fn is_clear(&self) -> bool {
        let flow = |flow: Flow| !flow.held && flow.delay.is_zero();
        let idle = !self.lose_reply && !self.losing && self.cut_after.is_none() && self.hold_from.is_none();
        flow(self.to_server) && flow(self.to_client) && !self.refusing && idle
    }
}

impl Default for Shared {
    fn default() -> Self {
        let (state, requests) =
            (watch::Sender::new(State::default()), watch::Sender::new(Requests::default()));
        Self { state, requests, last: Mutex::default() }
    }
}

impl Shared {
    /// The place of a request that is sent now.
    pub(super) fn place(&self) -> Place {
        let (passed, last) = oneshot::channel();
        let before = self.last.lock().unwrap_or_else(PoisonError::into_inner).replace(last);
        Place { before, _passed: passed }
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut State)) {
        self.state.send_modify(change);
    }

    /// Waits while nothing passes this way.
    pub(super) async fn open(&self, way: Way) {
        let _ = self.state.subscribe().wait_for(|state| !state.flow(way).held).await;
    }

    pub(super) async fn cut_more_than(&self, cuts: u64) {
        let _ = self.state.subscribe().wait_for(|state| state.cuts > cuts).await;
    }

    /// To be called before a request is passed on.
    pub(super) fn before_request(&self, word: &str) {
        self.state.send_if_modified(|state| {
            let held = state.hold_from == Some(word);
            if held {
                state.hold_from = None;
                state.to_server.held = true;
            }
            held
        });
    }

    /// To be called when a request was passed on.
    pub(super) fn after_request(&self) {
        self.state.send_if_modified(|state| {
            if state.lose_reply {
                (state.lose_reply, state.losing) = (false, true);
            }
            let Some(left) = state.cut_after else { return false };
            state.cut_after = Some(left.saturating_sub(1));
            if left <= 1 {
                state.cut();
            }
            left <= 1
        });
    }

    /// To be called before a reply is passed on: cuts the link if this is the one to lose.
    pub(super) fn before_reply(&self) {
        self.state.send_if_modified(|state| {
            let losing = state.losing;
            if losing {
                state.cut();
            }
            losing
        });
    }
}
