//! What lies between one client and the server, and can fail.
//!
//! Where the server has a wire, a link is a TCP proxy of its own; else it is a [`Gate`] between the core
//! and the backend. The faults are the same: cases do not care which.

mod gate;
mod requests;
mod state;
#[cfg(test)]
mod tests;
mod wire;

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use tokio_util::task::AbortOnDropHandle;

pub(crate) use gate::Gate;
pub(crate) use requests::Requests;
use state::{Shared, State};

/// Which way a fault works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    ToServer,
    ToClient,
    Both,
}

/// The link of one client.
#[derive(Debug)]
pub(crate) struct Link {
    shared: Arc<Shared>,
    /// Where the client connects to; `None` for a gate.
    address: Option<SocketAddr>,
    _proxy: Option<AbortOnDropHandle<()>>,
}

impl Link {
    /// A proxy in front of the server at this address.
    pub(crate) fn to(server: SocketAddr) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let (address, proxy) = wire::listen(server, shared.clone())?;
        Ok(Self { shared, address: Some(address), _proxy: Some(proxy) })
    }

    /// A link for a client without a wire; put a [`Gate`] of it round the backend.
    pub(crate) fn without_wire() -> Self {
        Self { shared: Arc::default(), address: None, _proxy: None }
    }

    /// Where the client connects to, if there is a wire.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Breaks every connection now, by a reset; what was under way, either way, is lost. New connections
    /// are let in.
    pub(crate) fn cut(&self) {
        self.shared.change(State::cut);
    }

    /// Lets nothing pass from now on, without a sign of it. What is sent meanwhile arrives, late, when
    /// the link [heals](Self::heal); unless it is [cut](Self::cut) before.
    pub(crate) fn blackhole(&self, way: Way) {
        self.shared.change(|state| state.flows(way, |flow| flow.held = true));
    }

    /// Delays everything by so much.
    pub(crate) fn delay(&self, way: Way, delay: Duration) {
        self.shared.change(|state| state.flows(way, |flow| flow.delay = delay));
    }

    /// Breaks every connection, and every new one, until it heals.
    pub(crate) fn down(&self) {
        self.shared.change(|state| {
            state.refusing = true;
            state.cut();
        });
    }

    /// Lets the next request pass and cuts the link in place of its reply.
    pub(crate) fn lose_next_reply(&self) {
        self.shared.change(|state| state.lose_reply = true);
    }

    /// Lets so many more requests pass and cuts the link right after the last.
    pub(crate) fn cut_after_requests(&self, requests: u64) {
        self.shared.change(|state| state.cut_after = Some(requests));
    }

    /// From the next request with this first word on, nothing passes to the server.
    pub(crate) fn hold_from(&self, word: &'static str) {
        self.shared.change(|state| state.hold_from = Some(word));
    }

    /// Ends every fault.
    pub(crate) fn heal(&self) {
        self.shared.change(State::heal);
    }

    /// What the client has sent so far.
    pub(crate) fn requests(&self) -> Requests {
        self.shared.requests.borrow().clone()
    }

    /// Waits until the client has sent what the condition asks for.
    pub(crate) async fn sent(&self, condition: impl FnMut(&Requests) -> bool) {
        // The sender lives in `self`.
        let _ = self.shared.requests.subscribe().wait_for(condition).await;
    }

    /// Waits until the client sends one more request than by now; for what is under way already, look at
    /// [`requests`](Self::requests) before it starts and use [`sent`](Self::sent).
    pub(crate) async fn next_request(&self) {
        let before = self.requests().total;
        self.sent(|requests| requests.total > before).await;
    }

    /// How often the link was cut, by command or by a reply lost.
    pub(crate) fn cuts(&self) -> u64 {
        self.shared.state.borrow().cuts
    }

    /// Waits until the link has been cut more than so many times.
    pub(crate) async fn cut_more_than(&self, cuts: u64) {
        self.shared.cut_more_than(cuts).await;
    }
}
