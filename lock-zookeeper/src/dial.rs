use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use lock_core::{Doubt, Error, ErrorKind, Result};
use tracing::warn;
use zookeeper_client::{Acls, Client, Error as Refusal};

use crate::{
    ZookeeperOptions, error,
    session::{Session, Setup},
};

/// A connection that is silent for this part of a session is replaced by one to another server: early enough
/// for two more tries within the lease …
const SILENCE: u32 = 5;
/// … but a busy server may be silent for so long.
const PATIENCE: Duration = Duration::from_secs(1);

/// Opens sessions.
#[derive(Debug)]
pub(crate) struct Dialer {
    servers: String,
    credentials: Option<String>,
    tick: Duration,
    limit: Duration,
    setup: Arc<Setup>,
    warned: AtomicBool,
}

impl Dialer {
    pub(crate) fn new(options: &ZookeeperOptions) -> Result<Self> {
        let credentials = options.read_credentials()?;
        // Who has a password wants to keep others out.
        let acls = if credentials.is_some() { Acls::creator_all() } else { Acls::anyone_all() };
        let setup = Setup { root: options.root.clone(), acls, doubt: Doubt::new(), own: Arc::default() };
        Ok(Self {
            servers: options.servers.clone(),
            credentials,
            tick: options.tick,
            limit: options.connect_timeout,
            setup: Arc::new(setup),
            warned: AtomicBool::new(false),
        })
    }

    /// The session timeout to ask for, so that two thirds of it are the lease.
    pub(crate) fn timeout(&self, lease: Duration) -> Result<Duration> {
        let millis = lease.as_nanos().saturating_mul(3).div_ceil(2_000_000);
        let longest = u128::from(i32::MAX.unsigned_abs());
        let millis = u64::try_from(millis).ok().filter(|millis| u128::from(*millis) <= longest);
        let timeout = millis.map(Duration::from_millis).ok_or_else(|| {
            Error::invalid_input("zookeeper counts leases in 31 bits of milliseconds: at most 16 days")
        })?;
        Ok(timeout.max(self.tick * 6))
    }

    /// Opens a session on any of the servers; to be called in a runtime.
    pub(crate) async fn dial(self: Arc<Self>, timeout: Duration) -> Result<Arc<Session>> {
        let client = self.connect(timeout).await?;
        let given = client.session_timeout();
        if given < self.tick * 6 && !self.warned.swap(true, Relaxed) {
            warn!(?given, tick = ?self.tick, "sessions are too short for the server's ticks to be exact");
        }
        self.limited(Session::start(client, self.clone())).await
    }

    /// Asks through a session of its own whether a node is there, as far as the leader knows.
    pub(crate) async fn is_there(&self, path: &str) -> Result<bool> {
        let client = self.connect(self.tick * 6).await?;
        let look = async {
            client.sync(path).await?;
            Ok(client.check_stat(path).await?.is_some())
        };
        self.limited(look).await
    }

    pub(crate) fn setup(&self) -> &Arc<Setup> {
        &self.setup
    }

    async fn connect(&self, timeout: Duration) -> Result<Client> {
        let silence = (timeout / SILENCE).max(PATIENCE).min(timeout * 2 / 5);
        let mut connector =
            Client::connector().with_session_timeout(timeout).with_connection_timeout(silence);
        if let Some(credentials) = &self.credentials {
            connector = connector.with_auth("digest", credentials.as_bytes());
        }
        // A server that takes connections and answers nothing must not use up the time of the others.
        let servers = self.servers.split(',').count();
        let each = self.limit / u32::try_from(servers).unwrap_or(u32::MAX);
        for _ in 1..servers {
            if let Ok(connected) = tokio::time::timeout(each, connector.clone().connect(&self.servers)).await
            {
                return self.limited(async { connected }).await;
            }
        }
        self.limited(connector.connect(&self.servers)).await
    }

    async fn limited<T>(&self, step: impl Future<Output = Result<T, Refusal>>) -> Result<T> {
        match tokio::time::timeout(self.limit, step).await {
            Ok(Ok(done)) => Ok(done),
            Err(_) | Ok(Err(Refusal::Timeout | Refusal::NoHosts)) => Err(self.unreachable()),
            Ok(Err(refusal)) => Err(error::from_driver(&refusal)),
        }
    }

    fn unreachable(&self) -> Error {
        let (servers, limit) = (&self.servers, self.limit);
        Error::new(ErrorKind::Unavailable, format!("zookeeper at {servers} gave no session within {limit:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_half_as_long_again_as_the_lease_and_at_least_six_ticks() {
        let options = ZookeeperOptions::new(["h"]).tick(Duration::from_millis(10));
        let dialer = Dialer::new(&options).unwrap();
        for (lease, expected) in [
            (Duration::from_secs(33), 49_500),
            (Duration::from_micros(1_100_450), 1651),
            (Duration::ZERO, 60),
            (Duration::from_millis(40), 60),
        ] {
            assert_eq!(dialer.timeout(lease).unwrap(), Duration::from_millis(expected), "{lease:?}");
        }
        for lease in [Duration::MAX, Duration::from_hours(20 * 365 * 24)] {
            assert_eq!(dialer.timeout(lease).unwrap_err().kind(), ErrorKind::InvalidInput);
        }
    }
}
