use std::time::Duration;

use tokio::time::timeout;
use tracing::debug;

use super::{Nonce, Shared};
use crate::{error::Failure, pool::Lent};

/// When to ring again if nobody was asleep: who is awake looks at the rows before it sleeps again, and that
/// look may have come too early.
const LATER: [Duration; 7] = {
    let ms = Duration::from_millis;
    [ms(0), ms(1), ms(2), ms(4), ms(8), ms(16), ms(32)]
};

impl Shared {
    /// Ends the sleep of a waiter's connection; whether it slept. `None` if it cannot be woken.
    async fn rang(&self, lent: &mut Lent, bell: &Nonce) -> Option<bool> {
        let ringing = sqlx::raw_sql(self.statements.ring(bell)).execute(&mut **lent);
        let told = timeout(self.pool.dialer().limit(), ringing).await;
        let told = told.map(|told| heard(told.map(drop).map_err(Failure::from)));
        match told {
            Ok(Ok(slept)) => Some(slept),
            failed => {
                debug!(?failed, "a waiter was not woken");
                None
            }
        }
    }

    /// Rings until somebody wakes, or it is no use.
    pub(super) async fn ring_later(&self, mut lent: Lent, bell: &Nonce) {
        for pause in LATER {
            tokio::time::sleep(pause).await;
            match self.rang(&mut lent, bell).await {
                Some(false) => {}
                Some(true) => break,
                None => return,
            }
        }
        self.pool.give_back(lent);
    }
}

/// Whether a `KILL QUERY` met somebody asleep.
pub(crate) fn heard(told: Result<(), Failure>) -> Result<bool, Failure> {
    match told {
        Ok(()) => Ok(true),
        Err(failure) if failure.is_nobody() => Ok(false),
        Err(failure) => Err(failure),
    }
}
