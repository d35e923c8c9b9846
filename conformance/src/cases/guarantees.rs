//! Promises as data: the backend's own word, and what a user may require.

use lock_core::{ErrorKind, Fault, Promise, Scope};

use crate::{
    Stage,
    case::{Case, Failure, Outcome, case},
};

pub(crate) const CASES: &[Case] = &[
    case!(are_what_the_fixture_says),
    case!(what_is_promised_can_be_required),
    case!(what_is_not_promised_is_an_error_to_require),
];

fn every_promise() -> impl Iterator<Item = Promise> {
    let faults = Fault::ALL.iter().flat_map(|&fault| [Promise::Exclusion(fault), Promise::Fencing(fault)]);
    let scopes = [Scope::Process, Scope::Machine, Scope::Network].map(Promise::Scope);
    faults.chain(scopes).chain([Promise::TakeoverAtOnce, Promise::Fifo, Promise::Push])
}

/// Cases are chosen by the fixture's word; it must be the backend's, as it found its server.
async fn are_what_the_fixture_says(stage: Stage) -> Outcome {
    let expected = stage.fixture().guarantees();
    assert_eq!(stage.bare().await?.backend.guarantees(), expected);
    assert_eq!(stage.client().await?.locks.guarantees(), expected);
    Ok(())
}

async fn what_is_promised_can_be_required(stage: Stage) -> Outcome {
    let locks = stage.client().await?.locks;
    let promised = every_promise().filter(|&promise| locks.guarantees().meets(promise));
    locks.clone().require(promised.collect::<Vec<_>>())?;
    Ok(())
}

async fn what_is_not_promised_is_an_error_to_require(stage: Stage) -> Outcome {
    let locks = stage.client().await?.locks;
    for promise in every_promise().filter(|&promise| !locks.guarantees().meets(promise)) {
        let Err(error) = locks.clone().require([promise]) else {
            return Err(Failure::new(format!("{promise} was met although it is not promised")));
        };
        assert_eq!(error.kind(), ErrorKind::Unmet);
        assert!(error.to_string().contains(&promise.to_string()), "{error}");
    }
    Ok(())
}
