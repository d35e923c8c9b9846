use std::{sync::Arc, time::Duration};

use lock_core::{
    Attempt, Busy, Claim, FencingToken, Grant, Lease, Moment, Name, Released, Renewal, Result, Wake,
};
use sqlx::Row;

use crate::{
    bell::{Bell, Clapper, Ear},
    error::{Failure, from_sqlx, unexpected},
    pool::{Lent, Pool},
    statements::Statements,
    transaction::{Change, Found, LeaseRow, Waiter, Word},
};

/// How often a step is begun anew after another transaction was in its way, or after the table was made.
const REPEATS: u32 = 5;

/// The verbs. Their futures must not be dropped midway while a caller relies on the outcome; when one is,
/// its connection is closed.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) pool: Arc<Pool>,
    pub(crate) statements: Arc<Statements>,
    pub(crate) bell: Bell,
}

impl Store {
    pub(crate) async fn acquire(&self, claim: &Claim) -> Result<Attempt> {
        let mut repeats = REPEATS;
        loop {
            match self.try_acquire(claim).await {
                Ok(attempt) => return Ok(attempt),
                Err(failure) => self.mend(failure, &mut repeats).await?,
            }
        }
    }

    pub(crate) async fn renew(&self, claim: &Claim) -> Result<Renewal> {
        let mut repeats = REPEATS;
        loop {
            match self.try_renew(claim).await {
                Ok(renewal) => return Ok(renewal),
                Err(failure) => self.mend(failure, &mut repeats).await?,
            }
        }
    }

    pub(crate) async fn release(&self, claim: &Claim) -> Result<Released> {
        let mut repeats = REPEATS;
        loop {
            match self.try_release(claim).await {
                Ok(released) => return Ok(released),
                Err(failure) => self.mend(failure, &mut repeats).await?,
            }
        }
    }

    /// Says whether a step that failed may be begun anew, for it certainly left nothing.
    async fn mend(&self, failure: Failure, repeats: &mut u32) -> Result<()> {
        if failure.is_broken() {
            self.pool.forget();
        }
        let missing = failure.is_missing_table();
        if *repeats == 0 || !(missing || failure.is_conflict()) {
            return Err(failure.into());
        }
        *repeats -= 1;
        if missing {
            let mut lent = self.pool.lend().await?;
            let made = sqlx::raw_sql(self.statements.migration()).execute(&mut *lent).await;
            made.map_err(from_sqlx)?;
            self.pool.give_back(lent);
        }
        Ok(())
    }

    async fn try_acquire(&self, claim: &Claim) -> Result<Attempt, Failure> {
        let mut lent = self.pool.lend().await?;
        let since = Moment::now();
        let owner = claim.owner.as_bytes().as_slice();
        let taken = sqlx::query(self.statements.acquire())
            .bind(owner)
            .bind(owner)
            .bind(&*claim.label)
            .bind(Statements::length(claim.lease))
            .bind(claim.name.as_str().as_bytes())
            .bind(owner)
            .execute(&mut *lent)
            .await?;
        if taken.rows_affected() > 0 {
            self.pool.give_back(lent);
            return Ok(held(claim, taken.last_insert_id(), since));
        }

        // Before the look, so that it hears every hand-over that the look did not see.
        let ear = if claim.queue { self.bell.listen(claim).await } else { None };
        let (since, found) = self.look_at_a_row(&mut lent, &claim.name).await?;
        let plan = found.acquire(claim, ear.as_ref().map(|ear| &ear.clapper)).ok_or_else(unexpected)?;
        let token = self.commit(&mut lent, &claim.name, &plan.changes).await?;
        self.hand_over(lent, plan.promoted);
        Ok(match plan.answer {
            Word::Held => held(claim, token.ok_or_else(unexpected)?, since),
            Word::Busy(recheck_within) => Attempt::Busy(Busy::new(ear.map(wake), recheck_within)),
        })
    }

    async fn try_renew(&self, claim: &Claim) -> Result<Renewal, Failure> {
        let mut lent = self.pool.lend().await?;
        let since = Moment::now();
        let kept = sqlx::query(self.statements.renew())
            .bind(Statements::length(claim.lease))
            .bind(claim.name.as_str().as_bytes())
            .bind(claim.owner.as_bytes().as_slice())
            .execute(&mut *lent)
            .await?;
        self.pool.give_back(lent);
        Ok(if kept.rows_affected() > 0 { Renewal::Kept(lease(claim, since)) } else { Renewal::Lost })
    }

    async fn try_release(&self, claim: &Claim) -> Result<Released, Failure> {
        let mut lent = self.pool.lend().await?;
        let freed = sqlx::query(self.statements.release())
            .bind(claim.name.as_str().as_bytes())
            .bind(claim.owner.as_bytes().as_slice())
            .execute(&mut *lent)
            .await?;
        if freed.rows_affected() > 0 {
            self.pool.give_back(lent);
            return Ok(Released::Released);
        }
        let found = self.look(&mut lent, &claim.name).await?;
        let plan = found.release(claim);
        self.commit(&mut lent, &claim.name, &plan.changes).await?;
        self.hand_over(lent, plan.promoted);
        Ok(plan.answer)
    }

    /// Looks at a name, and makes its row if there is none.
    ///
    /// The row is made outside the transaction: two that had found none would wait for each other.
    async fn look_at_a_row(&self, lent: &mut Lent, name: &Name) -> Result<(Moment, Found), Failure> {
        let since = Moment::now();
        let found = self.look(lent, name).await?;
        if found.lease.is_some() {
            return Ok((since, found));
        }
        self.commit(lent, name, &[]).await?;
        sqlx::raw_sql(self.statements.make(name)).execute(&mut **lent).await?;
        let since = Moment::now();
        Ok((since, self.look(lent, name).await?))
    }

    async fn look(&self, lent: &mut Lent, name: &Name) -> Result<Found, Failure> {
        let mut found = Found::default();
        for row in sqlx::raw_sql(self.statements.look(name)).fetch_all(&mut **lent).await? {
            let left = row.try_get_unchecked(0)?;
            if row.len() == 3 {
                let (owner, version) = (row.try_get_unchecked(1)?, row.try_get_unchecked(2)?);
                found.lease = Some(LeaseRow { left, owner, version });
            } else {
                let connection: Option<u64> = row.try_get_unchecked(4)?;
                let nonce: Option<String> = row.try_get_unchecked(5)?;
                found.queue.push(Waiter {
                    left,
                    owner: row.try_get_unchecked(1)?,
                    ticket: row.try_get_unchecked(2)?,
                    label: row.try_get_unchecked(3)?,
                    bell: connection.zip(nonce).map(|(connection, nonce)| Clapper { connection, nonce }),
                });
            }
        }
        Ok(found)
    }

    /// Writes the changes; the token that one of them has told.
    async fn commit(
        &self,
        lent: &mut Lent,
        name: &Name,
        changes: &[Change<'_>],
    ) -> Result<Option<u64>, Failure> {
        let told = sqlx::raw_sql(self.statements.commit(name, changes)).fetch_optional(&mut **lent).await?;
        Ok(told.map(|row| row.try_get_unchecked(0)).transpose()?)
    }

    fn hand_over(&self, lent: Lent, promoted: Option<&Waiter>) {
        match promoted {
            Some(waiter) => self.bell.ring(waiter, lent),
            None => self.pool.give_back(lent),
        }
    }
}

fn held(claim: &Claim, token: u64, since: Moment) -> Attempt {
    Attempt::Held(Grant::new(FencingToken::new(token), lease(claim, since)))
}

fn lease(claim: &Claim, since: Moment) -> Lease {
    Lease::new(since, Duration::from_micros(Statements::length(claim.lease)))
}

fn wake(ear: Ear) -> Wake {
    Box::pin(async move {
        ear.heard().await;
        None
    })
}
