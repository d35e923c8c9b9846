use std::time::Duration;

use lock_core::{Error, ErrorKind, Fairness, Fault, Faults, Guarantees, Result, Scope, Wakeup};
use redis::{Cmd, Value, cmd};

use crate::{error, link::Link};

/// How late an expired key may still be there: the server's clock reads whole milliseconds.
const EXPIRY_LAG: Duration = Duration::from_millis(10);

/// What holds on every Redis server, whatever its configuration.
pub(crate) fn least() -> Guarantees {
    let mut least = Guarantees::nothing("Redis", Scope::Network);
    least.exclusion = Faults::of(&[Fault::HolderCrash, Fault::HolderPause, Fault::Partition]);
    // Without its data the server counts on from its clock; with its data, whatever the clock does. What
    // another server's clock or data say after a failover is not known.
    least.fencing = Faults::of(&[
        Fault::HolderCrash,
        Fault::HolderPause,
        Fault::Partition,
        Fault::ServerRestart,
        Fault::ServerClockStep,
        Fault::Eviction,
        Fault::DataLoss,
    ]);
    least.expiry_lag = EXPIRY_LAG;
    least.fairness = Fairness::FifoByClaim;
    least
}

/// What this server promises, as far as it tells this user.
///
/// # Errors
///
/// `Unsupported` for a cluster's node or a sentinel, `Unavailable` for a replica.
pub(crate) async fn guarantees(link: &Link) -> Result<Guarantees> {
    let mut guarantees = least();
    if let Some(about) = told(link, &cmd("INFO")).await? {
        refuse_what_is_no_single_server(&about)?;
    }
    if keeps_every_answer(link).await? {
        guarantees.exclusion = guarantees.exclusion.with(Fault::ServerRestart);
    }
    if setting(link, "maxmemory-policy").await?.as_deref() == Some("noeviction") {
        guarantees.exclusion = guarantees.exclusion.with(Fault::Eviction);
    }
    // Three things must be allowed: RESP3, hearing the channel, and telling it.
    if let Some(channel) = link.probe().await {
        let told = told(link, cmd("PUBLISH").arg(channel).arg("")).await?;
        guarantees.wakeup = if told.is_some() { Wakeup::Push } else { Wakeup::Poll };
    }
    Ok(guarantees)
}

fn refuse_what_is_no_single_server(about: &Value) -> Result<()> {
    let about = text(about).unwrap_or_default();
    let field = |name: &str| about.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    if field("redis_mode") == Some("sentinel") {
        let text = "this is a Redis Sentinel, which is not supported: name the server itself";
        return Err(Error::new(ErrorKind::Unsupported, text));
    }
    if field("redis_mode") == Some("cluster") || field("cluster_enabled") == Some("1") {
        return Err(Error::new(ErrorKind::Unsupported, error::CLUSTER));
    }
    if field("role") == Some("slave") {
        return Err(Error::new(ErrorKind::Unavailable, "this Redis is a replica: name its primary"));
    }
    Ok(())
}

/// Whether what was answered is in the append-only file when the process is killed.
///
/// The file is written before answers are sent; but with `everysec` that write is put off for up to two
/// seconds while an earlier one is being synced.
async fn keeps_every_answer(link: &Link) -> Result<bool> {
    if setting(link, "appendonly").await?.as_deref() != Some("yes") {
        return Ok(false);
    }
    Ok(matches!(setting(link, "appendfsync").await?.as_deref(), Some("always" | "no")))
}

async fn setting(link: &Link, name: &str) -> Result<Option<String>> {
    let answer = told(link, cmd("CONFIG").arg("GET").arg(name)).await?;
    let value = match answer {
        Some(Value::Map(pairs)) => pairs.into_iter().next().map(|(_, value)| value),
        Some(Value::Array(values)) => values.into_iter().nth(1),
        _ => None,
    };
    Ok(value.as_ref().and_then(text).map(str::to_owned))
}

/// The answer to a question that a careful operator, or a hosted server, may have forbidden.
async fn told(link: &Link, question: &Cmd) -> Result<Option<Value>> {
    match link.ask(question).await {
        Ok(answer) => Ok(Some(answer)),
        Err(refused) => match error::code(&refused) {
            "NOPERM" | "ERR" => Ok(None),
            _ => Err(error::from_redis(&refused)),
        },
    }
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Some(text),
        _ => None,
    }
}
