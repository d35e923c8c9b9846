use std::{
    hash::{BuildHasher, RandomState},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use etcd_client::{Client, ConnectOptions};
use lock_core::Error;
use tracing::{debug, warn};

use crate::{
    EtcdOptions,
    cluster::Member,
    error::{self, Failure, Nature},
    version,
};

/// A connection with requests under way is asked for a sign of life so often; the server takes more than
/// one in five seconds for an attack.
const PING: Duration = Duration::from_secs(6);
const PING_LIMIT: Duration = Duration::from_secs(3);
/// The pause before a dial doubles with every failure from here …
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// … to here, so that a cluster that is back is found soon, and one that is away is asked rarely.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// Makes connections, each to the member whose turn it is.
pub(crate) struct Dialer {
    addresses: Vec<String>,
    options: ConnectOptions,
    limit: Duration,
    probe: String,
    warned: AtomicBool,
}

impl Dialer {
    /// Reads the files that the options name.
    pub(crate) fn new(options: &EtcdOptions) -> Result<Self, Error> {
        let mut connect = ConnectOptions::new()
            .with_connect_timeout(options.connect_timeout)
            .with_keep_alive(PING, PING_LIMIT)
            .with_keep_alive_while_idle(false)
            .with_tcp_keepalive(PING)
            .with_require_leader(true)
            .with_auto_token_refresh(true);
        if let Some((user, password)) = options.login()? {
            connect = connect.with_user(user, password);
        }
        if let Some(tls) = options.tls_options()? {
            connect = connect.with_tls(tls);
        }
        Ok(Self {
            addresses: options.addresses(),
            options: connect,
            limit: options.connect_timeout,
            probe: options.prefix.probe(),
            warned: AtomicBool::new(false),
        })
    }

    /// How many members there are.
    pub(crate) fn members(&self) -> usize {
        self.addresses.len()
    }

    /// How long to wait before a dial after so many failures. The members are tried in turn without any.
    pub(crate) fn pause(&self, failures: u32) -> Duration {
        let Some(round) = failures.checked_sub(u32::try_from(self.members()).unwrap_or(u32::MAX)) else {
            return Duration::ZERO;
        };
        let longest = FIRST_PAUSE.saturating_mul(1 << round.min(16)).min(LONGEST_PAUSE);
        // Drawn from its upper half, so that clients do not dial in step.
        let draw = RandomState::new().hash_one(failures) as u32;
        longest / 2 + (longest / 2).mul_f64(f64::from(draw) / f64::from(u32::MAX))
    }

    /// Connects once, within the limit, and makes sure that the member serves this user.
    ///
    /// The driver would connect for each request anew: it never says that it could not.
    pub(crate) async fn dial(&self, turn: u64) -> Result<Arc<Member>, Failure> {
        let address = &self.addresses[usize::try_from(turn).unwrap_or(0) % self.addresses.len()];
        let dialed = async {
            let client = Client::connect([address], Some(self.options.clone())).await?;
            let mut kv = client.kv_client();
            // Both at once, so that the second takes no time of its own.
            let (probed, ()) = tokio::join!(kv.get(&*self.probe, None), self.check_version(&client, address));
            probed.map(|_| client)
        };
        let client = match tokio::time::timeout(self.limit, dialed).await {
            Ok(Ok(client)) => client,
            Ok(Err(failed)) => {
                let failure = error::from_etcd(&failed);
                let nature = if failure.nature == Nature::Told { Nature::Told } else { Nature::NeverSent };
                return Err(Failure { nature, ..failure });
            }
            Err(_) => return Err(error::unreachable(address)),
        };
        debug!(address, "this member of etcd is asked now");
        Ok(Arc::new(Member::new(turn, &client)))
    }

    /// Warns once of a member that can end a lease too soon. Whoever may not ask, or hears nothing for a while,
    /// does without.
    async fn check_version(&self, client: &Client, address: &str) {
        if self.warned.load(Relaxed) {
            return;
        }
        let mut maintenance = client.maintenance_client();
        match tokio::time::timeout(self.limit / 4, maintenance.status()).await {
            Ok(Ok(status)) => {
                let version = status.version();
                debug!(address, version, "the version of this member");
                if let Some(upgrade) = version::upgrade_of(version)
                    && !self.warned.swap(true, Relaxed)
                {
                    warn!(address, version, "this etcd can end a lease too soon; run {upgrade} or later");
                }
            }
            Ok(Err(failed)) => debug!(address, %failed, "the version of this member is not told"),
            Err(_) => debug!(address, "the version of this member is not told in time"),
        }
    }
}
