//! Time to live: every length of a lease is refused or kept, and none lasts for ever.

use std::{sync::Arc, time::Duration};

use lock_core::{Attempt, ErrorKind, Locks, Moment, Name, Options, Release, Released, Renewal};
use tokio::task::JoinSet;

use super::renewal::{held_throughout, patient};
use crate::{
    Need, Stage,
    case::{Case, Outcome, case},
};

pub(crate) const CASES: &[Case] = &[
    case!(options_that_cannot_work_are_refused),
    case!(a_lease_of_any_length_is_refused_or_kept),
    case!(a_lease_too_short_to_use_ends_by_itself),
    case!(every_record_has_an_expiry, Need::Commands, Need::DeleteRecord),
    case!(a_lease_ends_no_sooner_than_it_says_and_soon_after),
    case!(fractions_of_a_millisecond_are_rounded_up),
    case!(renewals_are_timed_by_the_effective_ttl),
    case!(a_wait_may_last_longer_than_the_ttl),
    case!(a_short_lease_runs_out_while_a_long_one_lives),
];

const LONGEST: [Duration; 3] =
    [Duration::from_hours(20 * 365 * 24), Duration::from_millis(u64::MAX), Duration::MAX];

async fn options_that_cannot_work_are_refused(stage: Stage) -> Outcome {
    let bare = stage.bare().await?;
    let sent = bare.link.requests().total;
    let options = || stage.options();
    let mut bad: Vec<Options> = vec![
        options().with_grace(Duration::MAX),
        options().with_drift(0.5),
        options().with_drift(-0.01),
        options().with_drift(f64::NAN),
        options().with_margin(stage.ttl()),
        options().with_max_hold(Duration::ZERO),
        options().with_verb_limit(Duration::ZERO),
        options().with_verb_limit(Duration::MAX),
        options().with_waiters(0),
        options().with_label(""),
        options().with_label("two words"),
        options().with_label("x".repeat(65)),
    ];
    let short = [Duration::ZERO, Duration::from_nanos(1), Duration::from_micros(999)];
    bad.extend(short.iter().chain(&LONGEST).map(|ttl| options().with_ttl(*ttl)));
    for options in bad {
        let told = Locks::with_options(bare.backend.clone(), options.clone());
        let Err(error) = told else { return Err(format!("{options:?} were taken").into()) };
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{options:?}");
    }
    assert_eq!(bare.link.requests().total, sent);
    Ok(())
}

/// An error, or a lease of at least that length, which can be renewed and released.
async fn a_lease_of_any_length_is_refused_or_kept(stage: Stage) -> Outcome {
    let (bare, rival) = (stage.bare().await?, stage.bare().await?);
    for lease in LONGEST {
        let mut claim = stage.claim(&stage.name());
        claim.lease = lease;
        let before = Moment::now();
        let Ok(attempt) = bare.backend.acquire(&claim).await else { continue };
        let Attempt::Held(grant) = attempt else { return Err(format!("{attempt:?}").into()) };
        assert!(grant.lease.since >= before);
        assert!(grant.lease.length >= lease.min(LONGEST[0]), "{:?} of {lease:?}", grant.lease.length);
        let Renewal::Kept(renewed) = bare.renew(&claim).await? else { return Err("lost".into()) };
        assert!(renewed.length >= lease.min(LONGEST[0]), "{:?} of {lease:?}", renewed.length);
        let busy = rival.busy(&stage.claim(&claim.name)).await?;
        assert!(busy.recheck_within > stage.lease(), "asked to come back after {:?}", busy.recheck_within);
        assert_eq!(bare.release(&claim).await?, Released::Released);
        rival.held(&stage.claim(&claim.name)).await?;
    }
    Ok(())
}

/// Granted or renewed for next to no time, it is soon over; what was longer before is over as well.
async fn a_lease_too_short_to_use_ends_by_itself(stage: Stage) -> Outcome {
    let (bare, rival) = (stage.bare().await?, stage.bare().await?);
    let short = [0, 1, 999_000, 1_000_000, 1_000_001].map(Duration::from_nanos);
    for lease in short {
        let mut claim = stage.claim_for(&stage.name(), 60.0);
        claim.lease = lease;
        if let Ok(Attempt::Held(grant)) = bare.backend.acquire(&claim).await {
            assert!(grant.lease.length >= lease, "{:?} of {lease:?}", grant.lease.length);
        }
        let next = stage.claim(&claim.name);
        stage.within(3.0, "the end of the lease", rival.held_at_last(&next)).await??;

        let mut claim = stage.claim_for(&stage.name(), 2.0);
        bare.held(&claim).await?;
        claim.lease = lease;
        if let Ok(Renewal::Kept(renewed)) = bare.backend.renew(&claim).await {
            assert!(renewed.length >= lease, "{:?} of {lease:?}", renewed.length);
        }
        let next = stage.claim(&claim.name);
        stage.within(5.0, "the end of the lease", rival.held_at_last(&next)).await??;
    }
    Ok(())
}

async fn every_record_has_an_expiry(stage: Stage) -> Outcome {
    let bare = stage.bare().await?;
    let left = |name: &Name| -> Result<i64, crate::case::Failure> {
        Ok(stage.command(&["PTTL", &stage.record(name)?])?.parse()?)
    };
    let short = [0, 1, 999_000, 123_450_000, 500_000_000].map(Duration::from_nanos);
    for lease in short.into_iter().chain(LONGEST) {
        let mut claim = stage.claim(&stage.name());
        claim.lease = lease;
        bare.held(&claim).await?;
        let granted = left(&claim.name)?;
        // Gone (-2) is right for the shortest; without an expiry (-1) is never.
        assert_ne!(granted, -1, "granted for {lease:?}");
        bare.renew(&claim).await?;
        let renewed = left(&claim.name)?;
        assert_ne!(renewed, -1, "renewed for {lease:?}");
        if lease > stage.ttl() {
            assert!(granted > 0 && renewed > 0, "{granted} and {renewed} of {lease:?}");
        }
        let most = i64::try_from(lease.as_millis()).unwrap_or(i64::MAX).saturating_add(1);
        assert!(granted <= most && renewed <= most, "{granted} and {renewed} of {lease:?}");
    }
    Ok(())
}

/// Leases of several lengths at once, each watched by a client that asks all the time.
async fn a_lease_ends_no_sooner_than_it_says_and_soon_after(stage: Stage) -> Outcome {
    let stage = Arc::new(stage);
    let mut leases = JoinSet::new();
    for of_ttl in [0.2, 0.45, 0.9, 1.7] {
        let stage = stage.clone();
        leases.spawn(async move {
            let (bare, rival) = (stage.bare().await?, stage.bare().await?);
            let claim = stage.claim_for(&stage.name(), of_ttl);
            let lease = bare.held(&claim).await?.lease;
            let granted = Moment::now();
            let next = stage.claim_for(&claim.name, 60.0);
            rival.held_at_last(&next).await?;
            let taken = Moment::now();
            assert!(taken >= lease.end(), "taken {:?} too soon", lease.end().saturating_since(taken));
            // The server may count from when it granted.
            let latest = granted + lease.length + stage.fixture().guarantees().expiry_lag + stage.part(2.0);
            assert!(taken <= latest, "taken {:?} too late", taken.saturating_since(latest));
            assert_eq!(bare.renew(&claim).await?, Renewal::Lost);
            Outcome::Ok(())
        });
    }
    while let Some(ended) = leases.join_next().await {
        ended??;
    }
    Ok(())
}

async fn fractions_of_a_millisecond_are_rounded_up(stage: Stage) -> Outcome {
    let fraction = Duration::from_micros(450);
    let bare = stage.bare().await?;
    let mut claim = stage.claim(&stage.name());
    claim.lease += fraction;
    assert!(bare.held(&claim).await?.lease.length >= claim.lease);
    let Renewal::Kept(renewed) = bare.renew(&claim).await? else { return Err("lost".into()) };
    assert!(renewed.length >= claim.lease);

    let ttl = stage.part(1.5) + fraction;
    let client = stage.client_with(patient(&stage).with_ttl(ttl)).await?;
    let held = client.acquire(&stage.name()).await?;
    // Less drift and margin, as core takes them off by default.
    assert!(held.ttl() >= ttl.mul_f64(0.99) - Duration::from_millis(3), "{:?} of {ttl:?}", held.ttl());
    held_throughout(&stage, &held, 2.0).await?;
    assert_eq!(held.release().await?, Release::Released);
    Ok(())
}

/// At about every third of what the server really gives; never a storm.
async fn renewals_are_timed_by_the_effective_ttl(stage: Stage) -> Outcome {
    let client = stage.client_with(patient(&stage)).await?;
    let held = client.acquire(&stage.name()).await?;
    let begun = Moment::now();
    held_throughout(&stage, &held, 3.0).await?;
    assert!(held.remaining() <= held.ttl());
    let statistics = client.locks.statistics();
    // One that failed is repeated at once.
    let renewals = statistics.renew.calls - statistics.renewal_failures;
    let thirds = Moment::now().saturating_since(begun).as_secs_f64() / held.ttl().as_secs_f64() * 3.0;
    // A tenth sooner at the most, and one more that is under way; later on a loaded machine.
    let most = thirds / 0.9 + 1.0;
    assert!(renewals as f64 <= most, "{renewals} renewals in {thirds} thirds");
    assert!(renewals >= 6, "{renewals} renewals in {thirds} thirds");
    Ok(())
}

async fn a_wait_may_last_longer_than_the_ttl(stage: Stage) -> Outcome {
    let (holder, waiter) =
        (stage.client_with(patient(&stage)).await?, stage.client_with(patient(&stage)).await?);
    let name = stage.name();
    let held = holder.acquire(&name).await?;
    let begun = Moment::now();
    let patience = stage.part(2.5);
    let told = waiter.acquire_within(&name, patience).await?;
    assert!(told.is_none(), "it was held all the time");
    let waited = Moment::now().saturating_since(begun);
    assert!(waited >= patience, "gave up after {waited:?} of {patience:?}");
    assert!(waited <= patience + stage.part(5.0), "gave up after {waited:?} of {patience:?}");

    let patience = stage.part(20.0);
    let (next, released) = tokio::join!(waiter.acquire_within(&name, patience), async {
        held_throughout(&stage, &held, 1.5).await?;
        held.release().await?;
        Outcome::Ok(())
    });
    released?;
    let next = next?.ok_or("given up before its patience was over")?;
    assert!(next.seen());
    next.release().await?;
    Ok(())
}

/// Whoever looks after leases must not sleep until the longest is over.
async fn a_short_lease_runs_out_while_a_long_one_lives(stage: Stage) -> Outcome {
    let (bare, client) = (stage.bare().await?, stage.client_with(patient(&stage)).await?);
    let (long, short) = (stage.claim_for(&stage.name(), 60.0), stage.claim_for(&stage.name(), 0.3));
    bare.held(&long).await?;
    bare.held(&short).await?;
    let bound = 0.3 + 6.0 + stage.fixture().guarantees().expiry_lag.as_secs_f64() / stage.ttl().as_secs_f64();
    stage.within(bound, "the end of the short lease", client.acquire(&short.name)).await??.release().await?;
    bare.busy(&stage.claim(&long.name)).await?;
    assert_eq!(bare.release(&long).await?, Released::Released);
    Ok(())
}
