//! What Redis servers do to their clients: scripts flushed, memory full, users restricted, connections
//! closed.

use std::{error::Error as _, io, time::Duration};

use lock_core::{ErrorKind, Fault, Locks, Loss, Moment, Promise, Release, Released, Renewal};
use tokio::join;

use super::{
    reconnect::{next_request, patient},
    waiting::until,
};
use crate::{
    Need, Stage,
    case::{Case, Failure, Outcome, case},
    link::Link,
    logs::Capture,
};

const EVICTION: Promise = Promise::Exclusion(Fault::Eviction);

/// A password that nothing may ever show.
const SECRET: &str = "s3cr3t";

pub(crate) const CASES: &[Case] = &[
    case!(scripts_that_are_flushed_before_a_verb_run_again, Need::Commands, Need::OwnServer),
    case!(a_server_that_is_read_only_for_a_while_costs_no_lock, Need::Commands, Need::OwnServer),
    case!(
        a_full_server_refuses_new_locks_and_keeps_the_old_ones,
        Need::Commands,
        Need::OwnServer,
        Need::Promised(EVICTION)
    ),
    case!(eviction_lets_two_hold, Need::Commands, Need::OwnServer, Need::Absent(EVICTION)),
    case!(without_channels_clients_lock_and_wait, Need::Commands),
    case!(idle_connections_may_be_closed_by_the_server, Need::Commands, Need::OwnServer),
    case!(a_crash_storm_leaves_the_fencing_counters_and_nothing_else, Need::Commands, Need::OwnServer),
    case!(a_wrong_password_is_denied_at_once, Need::Commands),
    case!(a_password_that_changes_is_denied_and_not_tried_again_and_again, Need::Commands),
    case!(a_password_is_never_shown, Need::Commands),
];

/// A URL for a user of this name, whom the rules describe beside his password.
fn user(stage: &Stage, link: &Link, name: &str, rules: &str) -> Result<String, Failure> {
    let password = format!(">{SECRET}");
    let mut words = vec!["ACL", "SETUSER", name, "reset", "on", &password];
    words.extend(rules.split(' '));
    stage.command(&words)?;
    Ok(url(stage, link, &format!("{name}:{SECRET}")))
}

fn url(stage: &Stage, link: &Link, who: &str) -> String {
    stage.server().url(link.address()).replace("://", &format!("://{who}@"))
}

fn link(stage: &Stage) -> io::Result<Link> {
    let wire = stage.server().wire().ok_or_else(|| io::Error::other("a server with commands has a wire"))?;
    Link::to(wire)
}

async fn scripts_that_are_flushed_before_a_verb_run_again(stage: Stage) -> Outcome {
    let bare = stage.bare().await?;
    let (claim, rival) = (stage.claim_for(&stage.name(), 20.0), stage.name());
    let rival = stage.claim_for(&rival, 20.0);
    for _ in 0..3 {
        let flush = || stage.command(&["SCRIPT", "FLUSH"]);
        flush()?;
        let token = bare.held(&claim).await?.token;
        flush()?;
        assert_eq!(bare.held(&claim).await?.token, token);
        flush()?;
        assert!(matches!(bare.renew(&claim).await?, Renewal::Kept(_)));
        flush()?;
        assert_eq!(bare.renew(&rival).await?, Renewal::Lost);
        flush()?;
        assert_eq!(bare.release(&claim).await?, Released::Released);
        flush()?;
        assert_eq!(bare.release(&claim).await?, Released::Absent);
    }
    Ok(())
}

/// As after a failover by mistake: it refuses writes, and is itself again before any lease ends.
async fn a_server_that_is_read_only_for_a_while_costs_no_lock(stage: Stage) -> Outcome {
    let client = patient(&stage).await?;
    let (name, other) = (stage.name(), stage.name());
    let held = client.acquire(&name).await?;
    stage.command(&["REPLICAOF", "127.0.0.1", "1"])?;
    let failures = client.locks.statistics().renewal_failures;
    let refused = client.try_acquire(&other).await.err().ok_or("a replica granted a lock")?;
    assert!(refused.is_transient(), "{refused}");
    until(&stage, "a renewal", || client.locks.statistics().renewal_failures > failures).await?;
    assert!(held.seen(), "lost by a refusal, before its time");
    stage.command(&["REPLICAOF", "NO", "ONE"])?;
    let again = client.acquire_within(&other, stage.part(12.0)).await?;
    drop(again.ok_or("busy, although nobody has ever held it")?);
    assert!(held.seen());
    assert_eq!(held.release().await?, Release::Released);
    Ok(())
}

async fn a_full_server_refuses_new_locks_and_keeps_the_old_ones(stage: Stage) -> Outcome {
    let client = patient(&stage).await?;
    let (name, other) = (stage.name(), stage.name());
    let (held, dropped) = (client.acquire(&name).await?, client.acquire(&other).await?);
    stage.command(&["CONFIG", "SET", "maxmemory", "1"])?;
    let refused = client.try_acquire(&stage.name()).await.err().ok_or("a full server granted a lock")?;
    assert!(refused.is_transient(), "{refused}");
    assert!(refused.to_string().contains("memory"), "{refused}");
    let renewals = client.locks.statistics().renewals;
    let renewed = || client.locks.statistics().renewals >= renewals + 4;
    until(&stage, "renewals by a full server", renewed).await?;
    assert!(held.seen() && dropped.seen(), "a full server lost a lock");
    assert_eq!(held.release().await?, Release::Released);
    drop(dropped);
    stage.command(&["CONFIG", "SET", "maxmemory", "0"])?;
    for name in [name, other] {
        let again = client.acquire_within(&name, stage.part(8.0)).await?;
        drop(again.ok_or("what was released is busy")?);
    }
    Ok(())
}

/// Why exclusion through eviction is not promised.
async fn eviction_lets_two_hold(stage: Stage) -> Outcome {
    let bare = stage.bare().await?;
    let name = stage.name();
    let lease = bare.held(&stage.claim_for(&name, 60.0)).await?.lease;
    stage.command(&["CONFIG", "SET", "maxmemory", "1"])?;
    // Whatever the policy, there is no room for this; what may be evicted is.
    let _ = stage.command(&["SET", "filler", "x"]);
    stage.command(&["CONFIG", "SET", "maxmemory", "0"])?;
    bare.held(&stage.claim(&name)).await?;
    assert!(Moment::now() < lease.end(), "the first lease is over");
    Ok(())
}

/// Nobody can be told of a release; so waiters ask.
async fn without_channels_clients_lock_and_wait(stage: Stage) -> Outcome {
    let (one, two) = (link(&stage)?, link(&stage)?);
    let url = user(&stage, &one, "no-channels", "~* resetchannels +@all")?;
    // Leases so long that only asking again finds the release in time.
    let options = stage.options().with_ttl(stage.part(60.0));
    let holder = Locks::with_options(stage.connect(&url).await?, options.clone())?;
    let url = self::url(&stage, &two, &format!("no-channels:{SECRET}"));
    let waiter = Locks::with_options(stage.connect(&url).await?, options)?;

    let name = stage.name();
    let guard = holder.lock(name.as_str())?.acquire().await?;
    let lock = waiter.lock(name.as_str())?;
    assert!(lock.try_acquire().await?.is_none());
    let asked = two.requests().total;
    let release = async {
        two.sent(|requests| requests.total > asked).await;
        guard.release().await
    };
    let (waited, released) = join!(lock.acquire_within(stage.part(10.0)), release);
    assert_eq!(released?, Release::Released);
    assert_eq!(
        waited?.ok_or("the waiter was not told, and did not ask")?.release().await?,
        Release::Released
    );
    Ok(())
}

/// It closes what is idle for a second, while locks are held and waited for.
async fn idle_connections_may_be_closed_by_the_server(stage: Stage) -> Outcome {
    let options = stage.options().with_ttl(Duration::from_secs(30)).with_verb_limit(Duration::from_secs(2));
    let (holder, waiter) = (stage.client_with(options.clone()).await?, stage.client_with(options).await?);
    let name = stage.name();
    let held = holder.acquire(&name).await?;
    let connections = holder.link.requests().connections;
    stage.command(&["CONFIG", "SET", "timeout", "1"])?;
    let asked = next_request(&waiter);
    let hold = async {
        asked.await;
        // The server looks for idle clients about once a second.
        let closed = holder.link.sent(|requests| requests.connections > connections);
        let closed = tokio::time::timeout(Duration::from_secs(20), closed);
        closed.await.map_err(|_| "the idle connection was not closed, or nobody noticed")?;
        tokio::time::sleep(Duration::from_secs(stage.rounds(0, 60).into())).await;
        assert!(held.seen());
        assert_eq!(held.release().await?, Release::Released);
        Outcome::Ok(())
    };
    let (waited, kept) = join!(waiter.acquire_within(&name, Duration::from_secs(120)), hold);
    kept?;
    drop(waited?.ok_or("the waiter did not get it")?);
    Ok(())
}

/// Processes die as holders and as waiters; two leases later only one small key for each name is left.
async fn a_crash_storm_leaves_the_fencing_counters_and_nothing_else(stage: Stage) -> Outcome {
    let names = [stage.name(), stage.name(), stage.name()];
    for name in &names {
        let (mut holder, mut waiter) = (stage.holder().await?, stage.holder().await?);
        holder.acquire(name).await?;
        waiter.ask(name)?;
        stage.pass(0.1).await;
        waiter.kill()?;
        holder.kill()?;
    }
    tokio::time::sleep(stage.lease() * 2).await;
    let keys = stage.command(&["KEYS", "*"])?;
    let mut keys: Vec<&str> = keys.lines().collect();
    keys.sort_unstable();
    let mut expected = Vec::new();
    for name in &names {
        expected.push(format!("{}:fence", stage.record(name)?));
    }
    expected.sort_unstable();
    assert_eq!(keys, expected);
    assert_eq!(stage.command(&["PUBSUB", "CHANNELS"])?, "");
    Ok(())
}

async fn a_wrong_password_is_denied_at_once(stage: Stage) -> Outcome {
    let link = link(&stage)?;
    user(&stage, &link, "denied", "~* &* +@all")?;
    let wrong = url(&stage, &link, "denied:wrong");
    let denied = stage.within(4.0, "an answer", stage.connect(&wrong)).await?;
    let error = denied.err().ok_or("the wrong password was accepted")?;
    assert_eq!((error.kind(), error.is_transient()), (ErrorKind::Denied, false), "{error}");
    assert!(link.requests().connections <= 2, "asked again and again: {:?}", link.requests());
    Ok(())
}

/// The next connection is refused: acquiring says so at once, and a held lock ends with its lease.
async fn a_password_that_changes_is_denied_and_not_tried_again_and_again(stage: Stage) -> Outcome {
    let link = link(&stage)?;
    let url = user(&stage, &link, "changed", "~* &* +@all")?;
    let locks = Locks::with_options(stage.connect(&url).await?, stage.options())?;
    let guard = locks.lock(stage.name().as_str())?.acquire().await?;
    stage.command(&["ACL", "SETUSER", "changed", "resetpass", ">another"])?;
    let (connections, cuts) = (link.requests().connections, link.cuts());
    link.cut();
    link.cut_more_than(cuts).await;

    let lock = locks.lock(stage.name().as_str())?;
    let denied = async {
        loop {
            match lock.acquire_within(stage.part(20.0)).await {
                // The request that was on its way when the link was cut.
                Err(error) if error.is_transient() => {}
                other => return other,
            }
        }
    };
    let error = stage.within(6.0, "an answer", denied).await?.err().ok_or("the old password works")?;
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert_eq!(stage.within(4.0, "the end of the lease", guard.lost()).await?, Loss::Expired);
    stage.pass(1.0).await;
    let tried = link.requests().connections - connections;
    assert!(tried <= 10, "{tried} connections with a password that is refused");
    Ok(())
}

/// Neither in a debug text, nor in an error or its causes, nor in the log at its finest.
async fn a_password_is_never_shown(stage: Stage) -> Outcome {
    let log = Capture::new();
    let link = link(&stage)?;
    let mut shown = Vec::new();

    let good = user(&stage, &link, "shown", "~* &* +@all")?;
    let backend = stage.connect(&good).await?;
    shown.push(format!("{backend:?}"));
    let locks = Locks::with_options(backend, stage.options())?;
    let lock = locks.lock(stage.name().as_str())?;
    let guard = lock.acquire().await?;
    shown.push(format!("{locks:?} {lock:?} {guard:?} {:?}", locks.guarantees()));
    link.down();
    errors(&mut shown, locks.lock(stage.name().as_str())?.try_acquire().await.err());
    shown.push(format!("{}", guard.lost().await));
    errors(&mut shown, guard.release().await.err());

    errors(&mut shown, stage.connect(&good).await.err());
    link.heal();
    stage.command(&["ACL", "SETUSER", "shown", "resetpass", ">another"])?;
    errors(&mut shown, stage.connect(&good).await.err());
    let dead = std::net::TcpListener::bind(("127.0.0.1", 0))?.local_addr()?;
    let dead = stage.server().url(Some(dead));
    errors(&mut shown, stage.connect(&dead.replace("://", &format!("://shown:{SECRET}@"))).await.err());
    for bad in ["/x", "?nothing=1", "?protocol=9", ":99999", "?ttl=soon&prefix={"] {
        errors(&mut shown, stage.connect(&format!("{good}{bad}")).await.err());
    }

    assert!(shown.len() >= 10, "{shown:?}");
    for text in &shown {
        assert!(!text.contains(SECRET), "{text}");
    }
    let text = log.text();
    assert!(!text.is_empty(), "nothing was logged");
    assert!(!text.contains(SECRET), "the password is in the log");
    Ok(())
}

/// Adds every form of an error and of its causes; there must be one.
fn errors(shown: &mut Vec<String>, error: Option<lock_core::Error>) {
    let Some(error) = error else { panic!("an error was expected; so far {shown:?}") };
    shown.push(format!("{error} {error:?} {error:#?}"));
    let mut cause = error.source();
    while let Some(error) = cause {
        shown.push(format!("{error} {error:?}"));
        cause = error.source();
    }
}
