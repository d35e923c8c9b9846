//! Backends with one fault each, made from a good one: what the suite must catch.

mod mutant;

use std::{env, fmt, sync::Arc};

use lock_core::Backend;
use mutant::{Fault, Mutant};

/// The environment variable that puts a law mutant round every backend of the program.
const CHOSEN: &str = "POLYLOCK_LAW_MUTANT";

/// A wrapper that breaks one law of the backend under it, and the case that must fail then.
///
/// `POLYLOCK_LAW_MUTANT=<name>` puts it round every client of a conformance program, which needs no
/// other build. `--list-law-mutants` prints those that apply to the program's fixture.
#[derive(Clone, Copy)]
pub struct LawMutant {
    /// The fault, in a few words.
    pub name: &'static str,
    /// The case that catches it: `group::case`.
    pub case: &'static str,
    fault: Fault,
}

impl fmt::Debug for LawMutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} → {}", self.name, self.case)
    }
}

macro_rules! mutants {
    ($($name:literal $fault:ident $case:literal)*) => {
        &[$(LawMutant { name: $name, case: $case, fault: Fault::$fault }),*]
    };
}

/// All law mutants.
#[rustfmt::skip]
pub const LAW_MUTANTS: &[LawMutant] = mutants! {
    "release-without-owner-check"          ReleasesAnyone      "exclusion::a_release_takes_nothing_from_another_owner"
    "renew-that-creates"                   RenewCreates        "loss::a_renewal_never_creates"
    "lease-counted-from-the-reply"         SinceReply          "loss::a_lease_counts_from_before_its_request"
    "lease-counted-from-joining-a-batch"   SinceJoining        "loss::a_renewal_counts_from_the_request_that_proves_it"
    "busy-from-an-unarmed-look"            UnarmedLook         "laws::busy_comes_from_an_armed_look"
    "released-for-an-absent-claim"         ReleasedForAbsent   "laws::exact"
    "error-for-an-absent-claim"            ErrorForAbsent      "laws::idempotent"
    "token-of-the-last-grant"              TokenRepeats        "fencing::tokens_grow_with_every_grant"
    "token-inflated-by-a-repeat"           TokenInflates       "fencing::a_repeat_or_a_renewal_leaves_the_token_alone"
    "busy-try-stays-in-the-queue"          TryStays            "exclusion::a_busy_try_leaves_nothing_behind"
    "held-although-busy"                   HeldAlthoughBusy    "exclusion::one_of_many_clients_holds_at_a_time"
    "swallowed-release"                    SwallowsRelease     "exclusion::a_released_lock_is_free_at_once"
    "kept-although-lost"                   KeptAlthoughLost    "loss::a_renewal_of_what_another_owner_holds_says_lost"
    "renewal-that-extends-nothing"         RenewExtendsNothing "laws::alive"
    "repeat-that-extends-nothing"          RepeatExtendsNothing "laws::alive"
    "claims-remembered-by-the-client"      ReleasesOwnOnly     "laws::named_by_the_caller"
    "verb-that-waits-for-the-lock"         Waits               "laws::never_waits_for_another_owner"
    "dropped-verb-that-lives-on"           DropLivesOn         "laws::droppable"
    "word-of-the-server-for-an-error"      WordForError        "laws::honest"
};

/// The backend, in the chosen mutant if one is chosen.
pub(crate) fn wrap(backend: Arc<dyn Backend>) -> Arc<dyn Backend> {
    let Ok(chosen) = env::var(CHOSEN) else { return backend };
    let mutant = LAW_MUTANTS.iter().find(|mutant| mutant.name == chosen);
    let mutant = mutant.unwrap_or_else(|| panic!("{CHOSEN}={chosen}: there is no such mutant"));
    Arc::new(Mutant::new(mutant.fault, backend))
}
