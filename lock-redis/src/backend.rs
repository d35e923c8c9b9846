use std::{fmt, time::Duration};

use async_trait::async_trait;
use lock_core::{
    Attempt, Backend, Busy, Claim, Doubt, Error, ErrorKind, FencingToken, Grant, Guarantees, Lease, Moment,
    Owner, Released, Renewal, Result, Wake,
};
use redis::Value;

use crate::{
    RedisOptions,
    connection::Connection,
    dial::Dialer,
    error,
    keys::{Keys, Prefix},
    link::Link,
    scripts::{LuaScript, Scripts},
    server,
    wake::{Ear, Promotion},
};

/// The longest lease that the server is asked for: a hundred years.
const LONGEST: Duration = Duration::from_hours(100 * 365 * 24);

/// Locks on one Redis server.
///
/// A lock is a key whose value names its owner and fencing token and whose expiry is the lease; beside it
/// a counter remembers the last token, and a list who waits. See the [crate's documentation](crate) for what is promised, what
/// the server's user must be allowed, and what an operator sees.
///
/// All requests share one connection. It is opened by [`connect`](Self::connect), replaced when it is
/// lost or silent, and closed when the backend is dropped.
pub struct RedisBackend {
    connection: Connection,
    address: String,
    prefix: Prefix,
    scripts: Scripts,
    doubt: Doubt,
    guarantees: Guarantees,
}

impl RedisBackend {
    /// Connects, and reads from the server what can be promised.
    ///
    /// Connections live on the runtime that is current here.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] for options that cannot be used, [`ErrorKind::Denied`] for a wrong user,
    /// password or certificate, [`ErrorKind::Unsupported`] for a cluster or sentinel,
    /// [`ErrorKind::Unavailable`] if there is no server, or only a replica.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection.
    ///
    /// ```no_run
    /// # async fn f() -> lock_core::Result<()> {
    /// use lock_redis::{RedisBackend, RedisOptions};
    ///
    /// let backend = RedisBackend::connect(RedisOptions::new("127.0.0.1")).await?;
    /// let locks = lock_core::Locks::new(backend)?;
    /// # Ok(()) }
    /// ```
    pub async fn connect(options: RedisOptions) -> Result<Self> {
        if tokio::runtime::Handle::try_current().is_err() {
            return Err(Error::new(ErrorKind::NoRuntime, "redis needs a tokio runtime"));
        }
        let (address, prefix) = (options.server.to_string(), options.prefix.clone());
        let doubt = Doubt::new();
        let dialer = Dialer::new(options, doubt.clone())?;
        let limit = dialer.limit();
        let connection = Connection::new(dialer);
        let link = connection.link().await?;
        let guarantees =
            tokio::time::timeout(limit, server::guarantees(&link)).await.unwrap_or_else(|_| {
                let text = format!("redis at {address} did not answer within {limit:?}");
                Err(Error::new(ErrorKind::Unavailable, text))
            })?;
        Ok(Self { connection, address, prefix, scripts: Scripts::new(), doubt, guarantees })
    }
}

#[async_trait]
impl Backend for RedisBackend {
    fn guarantees(&self) -> Guarantees {
        self.guarantees
    }

    async fn acquire(&self, claim: &Claim) -> Result<Attempt> {
        let keys = self.prefix.keys(&claim.name);
        let link = self.connection.link().await?;
        let listener = || [&owner_tag(claim.owner), &*keys.lock].concat();
        // An ear from before the look hears every promotion that the look did not see.
        let ear = if claim.queue { link.ear(listener) } else { None };
        let holder = match self.look(&link, claim, &keys, ear.as_ref(), claim.fresh).await? {
            Look::Held(grant) => return Ok(Attempt::Held(grant)),
            Look::Busy(holder) if ear.is_some() || !claim.queue => return Ok(self.busy(claim, ear, holder)),
            Look::Busy(holder) => holder,
        };
        let Some(ear) = link.listen(listener).await else { return Ok(self.busy(claim, None, holder)) };
        match self.look(&link, claim, &keys, Some(&ear), false).await? {
            Look::Held(grant) => Ok(Attempt::Held(grant)),
            Look::Busy(holder) => Ok(self.busy(claim, Some(ear), holder)),
        }
    }

    async fn renew(&self, claim: &Claim) -> Result<Renewal> {
        let keys = self.prefix.keys(&claim.name);
        let link = self.connection.link().await?;
        let args = [owner_tag(claim.owner), milliseconds(claim.lease).to_string()];
        let (since, answer) =
            self.run(&link, &self.scripts.renew, &[&keys.lock], &[&args[0], &args[1]]).await;
        match answer {
            Ok(Value::Int(1)) => Ok(Renewal::Kept(lease(claim, since))),
            Ok(Value::Int(0)) => Ok(Renewal::Lost),
            Ok(_) => Err(error::unexpected()),
            Err(refused) => match error::from_redis(&refused) {
                // Something else is under the key, so the lock is not.
                foreign if foreign.kind() == ErrorKind::Foreign => Ok(Renewal::Lost),
                other => Err(other),
            },
        }
    }

    async fn release(&self, claim: &Claim) -> Result<Released> {
        let keys = self.prefix.keys(&claim.name);
        let link = self.connection.link().await?;
        let owner = owner_tag(claim.owner);
        let (_, answer) = self.run(&link, &self.scripts.release, &keys.all(), &[&owner]).await;
        match answer {
            Ok(Value::Int(1)) => Ok(Released::Released),
            Ok(Value::Int(0)) => Ok(Released::Absent),
            Ok(_) => Err(error::unexpected()),
            Err(refused) => match error::from_redis(&refused) {
                foreign if foreign.kind() == ErrorKind::Foreign => Ok(Released::Absent),
                other => Err(other),
            },
        }
    }
}

/// What one look at a lock found.
enum Look {
    Held(Grant),
    Busy(Holder),
}

/// Who has the lock instead.
struct Holder {
    token: u64,
    /// For how long, if nobody renews it.
    left: Duration,
    /// When the look was sent.
    since: Moment,
}

impl RedisBackend {
    /// Takes the lock if it is free, keeps it for a further lease if it is this claim's, or keeps the
    /// claim's place in the queue, where the ear is told of its turn. A `fresh` claim has no place there yet:
    /// the server need not look for one.
    async fn look(
        &self,
        link: &Link,
        claim: &Claim,
        keys: &Keys,
        ear: Option<&Ear>,
        fresh: bool,
    ) -> Result<Look> {
        let owner = owner_tag(claim.owner);
        let length = milliseconds(claim.lease).to_string();
        let label = [":", &claim.label].concat();
        let args = [&*owner, &length, &label, ear.map_or("", Ear::bell), if fresh { "1" } else { "0" }];
        let args = if claim.queue { &args[..] } else { &args[..3] };
        let (since, answer) = self.run(link, &self.scripts.acquire, &keys.all(), args).await;
        match answer.map_err(|refused| error::from_redis(&refused))? {
            Value::Int(token) => {
                let token = u64::try_from(token).map_err(|_| error::unexpected())?;
                Ok(Look::Held(self.grant(token, lease(claim, since))))
            }
            Value::Array(holder) => match holder.as_slice() {
                [Value::BulkString(value), Value::Int(left)] => {
                    let token = token_of(value)
                        .ok_or_else(|| error::foreign(&keys.lock, "holds a value that is not a lock's"))?;
                    let left = u64::try_from(*left)
                        .map_err(|_| error::foreign(&keys.lock, "never expires, so it is not a lock's"))?;
                    // One more, since the key lives until the end of its last millisecond.
                    let left = Duration::from_millis(left.saturating_add(1));
                    Ok(Look::Busy(Holder { token, left, since }))
                }
                _ => Err(error::unexpected()),
            },
            _ => Err(error::unexpected()),
        }
    }

    /// Everybody looks when the holder's lease ends: whoever is in front may have died with it.
    fn busy(&self, claim: &Claim, ear: Option<Ear>, holder: Holder) -> Attempt {
        let recheck_within = if claim.queue { holder.left.min(claim.lease / 3) } else { holder.left };
        let (asked, doubt) = (lease(claim, holder.since), self.doubt.signal());
        let wake = ear.map(|ear| -> Wake {
            Box::pin(async move {
                let told = ear.promoted_after(holder.token).await?;
                Some(Grant::new(FencingToken::new(told.token), left_of(asked, &told)).with_doubt(doubt))
            })
        });
        Attempt::Busy(Busy::new(wake, recheck_within))
    }

    fn grant(&self, token: u64, lease: Lease) -> Grant {
        Grant::new(FencingToken::new(token), lease).with_doubt(self.doubt.signal())
    }

    /// Runs a script by its hash, and by its text on a server that does not know it (any more). Says when
    /// the request that ran was sent.
    async fn run(
        &self,
        link: &Link,
        script: &LuaScript,
        keys: &[&str],
        args: &[&str],
    ) -> (Moment, redis::RedisResult<Value>) {
        let call = script.call(keys, args);
        let since = Moment::now();
        match link.ask_at(since, &call).await {
            Err(refused) if error::code(&refused) == "NOSCRIPT" => {
                let call = script.call_with_text(keys, args);
                let since = Moment::now();
                (since, link.ask_at(since, &call).await)
            }
            answer => (since, answer),
        }
    }
}

impl fmt::Debug for RedisBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisBackend")
            .field("address", &self.address)
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

fn lease(claim: &Claim, since: Moment) -> Lease {
    Lease::new(since, Duration::from_millis(milliseconds(claim.lease)))
}

/// What a promotion leaves of the lease that was asked for: all of it, unless the server's clock has jumped
/// and it says less.
fn left_of(asked: Lease, told: &Promotion) -> Lease {
    let gone = asked.length.saturating_sub(Duration::from_millis(told.left));
    Lease::new(asked.since.min(told.heard - gone), asked.length)
}

/// Rounded up, at least one: zero would delete the key.
fn milliseconds(lease: Duration) -> u64 {
    let whole = lease.min(LONGEST).as_nanos().div_ceil(1_000_000).max(1);
    u64::try_from(whole).unwrap_or(u64::MAX)
}

/// What the value of a lock starts with.
fn owner_tag(owner: Owner) -> String {
    owner.to_hex() + ":"
}

/// The token in a value that some claim wrote: `owner:token:label`.
fn token_of(value: &[u8]) -> Option<u64> {
    let mut parts = std::str::from_utf8(value).ok()?.splitn(3, ':');
    parts.next().and_then(Owner::from_hex)?;
    let token = parts.next()?.parse().ok()?;
    parts.next().map(|_label| token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_rounded_up_to_milliseconds_and_never_zero() {
        for (lease, expected) in [
            (Duration::ZERO, 1),
            (Duration::from_nanos(1), 1),
            (Duration::from_micros(123_450), 124),
            (Duration::from_secs(30), 30_000),
            (Duration::MAX, 3_153_600_000_000),
        ] {
            assert_eq!(milliseconds(lease), expected, "{lease:?}");
        }
    }

    #[test]
    fn only_what_a_claim_wrote_is_ours() {
        let value = b"00010203343536373839616263646566:1790000000000000:host:42";
        assert_eq!(token_of(value), Some(1_790_000_000_000_000));
        assert_eq!(token_of(b"00010203343536373839616263646566:7:-"), Some(7));
        for foreign in [
            &b""[..],
            b"locked",
            b"00010203343536373839616263646566",
            b"00010203343536373839616263646566:1.79e+15:-",
            b"0001020334353637383961626364656X:7:-",
            b"\xff",
        ] {
            assert_eq!(token_of(foreign), None, "{foreign:?}");
        }
    }
}
