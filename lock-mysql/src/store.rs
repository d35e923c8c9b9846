use std::{
    future::ready,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures_util::{
    TryStreamExt,
    future::{self, join_all, select},
};
use lock_core::{
    Attempt, Busy, Claim, Error, ErrorKind, FencingToken, Grant, Lease, Moment, Owner, Released, Renewal,
    Result,
};
use sqlx::{Either, Row, mysql::MySqlRow};
use tokio::sync::oneshot;

use crate::{
    bell::{Bell, Ear, Nonce, Promoted, heard},
    crowd::Crowd,
    error::{Failure, from_sqlx, unexpected},
    pool::{Lent, Pool},
    statements::{Statements, Transaction},
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
    pub(crate) crowd: Arc<Crowd>,
    /// Until when claims are renewed one by one.
    singly: Mutex<Option<Moment>>,
}

impl Store {
    pub(crate) fn new(pool: Arc<Pool>, statements: Arc<Statements>, bell: Bell, crowd: Arc<Crowd>) -> Self {
        Self { pool, statements, bell, crowd, singly: Mutex::default() }
    }

    /// `since` is a moment before the call. The lease counts from there, even if it took two requests: a
    /// caller's ttl begins when it asks.
    pub(crate) async fn acquire(&self, claim: &Claim, since: Moment) -> Result<Attempt> {
        let mut repeats = REPEATS;
        loop {
            match self.try_acquire(claim, since).await {
                Ok(attempt) => return Ok(attempt),
                Err(failure) => Box::pin(self.mend(failure, &mut repeats)).await?,
            }
        }
    }

    /// Renews claims that ask for the same lease, with one statement if it can.
    ///
    /// If one of them is lost, or its row locked by somebody, each is renewed for itself; the latter is not tried
    /// again for a whole lease.
    pub(crate) async fn renew(&self, claims: &[Claim]) -> Vec<Result<Renewal>> {
        if let [first, _, ..] = claims
            && self.renews_together()
        {
            let together = tokio::time::timeout(first.lease / 24, self.try_renew_together(claims)).await;
            match together {
                Ok(Ok(Some(since))) => {
                    return claims.iter().map(|claim| Ok(Renewal::Kept(lease(claim, since)))).collect();
                }
                Ok(Ok(None)) => {}
                failed => {
                    if failed.is_ok_and(|renewed| renewed.is_err_and(|failure| failure.is_broken())) {
                        self.pool.forget();
                    }
                    *self.singly.lock().unwrap_or_else(PoisonError::into_inner) =
                        Some(Moment::now() + first.lease);
                }
            }
        }
        join_all(claims.iter().map(|claim| self.renew_singly(claim))).await
    }

    fn renews_together(&self) -> bool {
        let mut singly = self.singly.lock().unwrap_or_else(PoisonError::into_inner);
        if singly.is_some_and(|until| until <= Moment::now()) {
            *singly = None;
        }
        singly.is_none()
    }

    async fn renew_singly(&self, claim: &Claim) -> Result<Renewal> {
        let mut repeats = REPEATS;
        loop {
            match self.try_renew(claim).await {
                Ok(renewal) => return Ok(renewal),
                Err(failure) => Box::pin(self.mend(failure, &mut repeats)).await?,
            }
        }
    }

    pub(crate) async fn release(&self, claim: &Claim) -> Result<Released> {
        let mut repeats = REPEATS;
        loop {
            match self.try_release(claim).await {
                Ok(released) => return Ok(released),
                Err(failure) => Box::pin(self.mend(failure, &mut repeats)).await?,
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

    async fn try_acquire(&self, claim: &Claim, since: Moment) -> Result<Attempt, Failure> {
        let mut lent = self.pool.lend().await?;
        if !self.crowd.stands_before(claim) {
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
                return held(claim, taken.last_insert_id(), since);
            }
        }

        // Apart, so that what a free lock costs is not moved about with all that a busy one needs.
        Box::pin(self.try_contended(lent, claim, since)).await
    }

    async fn try_contended(&self, lent: Lent, claim: &Claim, since: Moment) -> Result<Attempt, Failure> {
        // Before the look, so that it hears every hand-over that the look did not see.
        let mut ear = if claim.queue { self.bell.listen(claim) } else { None };
        let mut attempt = self.contend(lent, claim, ear.as_ref(), since).await?;
        let mut hung = None;
        if claim.queue && ear.is_none() && matches!(attempt, Attempt::Busy(_)) {
            // To hang the bell up is for those who have to wait. If it takes long, then in the background.
            hung = self.bell.hang();
            if let Some(done) = &mut hung
                && tokio::time::timeout(claim.lease / 24, done).await.is_ok()
            {
                hung = None;
                ear = self.bell.listen(claim);
                attempt = self.contend(self.pool.lend().await?, claim, ear.as_ref(), since).await?;
            }
        }
        if let Attempt::Busy(busy) = &mut attempt {
            busy.wake = match (ear, hung) {
                (Some(ear), _) => Some(Box::pin(ear.heard())),
                // Once it hangs, or cannot, it is time to look again.
                (None, Some(hung)) => Some(Box::pin(async move { hung.await.ok().and(None) })),
                (None, None) => None,
            };
        }
        Ok(attempt)
    }

    /// One look at a lock that was not free. If it is free now, whoever gets it is told.
    async fn contend(
        &self,
        lent: Lent,
        claim: &Claim,
        ear: Option<&Ear>,
        since: Moment,
    ) -> Result<Attempt, Failure> {
        let bell = || ear.map(|ear| ear.bell.clone());
        // Who has seen a crowd has seen the row.
        let make = !self.crowd.waits_for(&claim.name);
        let mut decided = decide(lent, self.statements.contend(claim, bell(), make)).await?;
        if !make && decided.row.try_get_unchecked::<i64, _>(3)? == 0 {
            let (lent, _) = decided.end.await;
            decided = decide(lent, self.statements.contend(claim, bell(), true)).await?;
        }
        let row = self.conclude(claim, decided, 4).await?;
        if row.try_get_unchecked::<i64, _>(0)? != 0 {
            return held(claim, row.try_get_unchecked(1)?, since);
        }
        self.crowd.learn(&claim.name, claim.queue || self.crowd.waits_for(&claim.name));
        let left: Option<i64> = row.try_get_unchecked(2)?;
        let left = Duration::from_micros(u64::try_from(left.unwrap_or(0)).unwrap_or(0));
        // All of them look when the holder's lease ends: whoever stands in front may be gone as well.
        let recheck_within = if claim.queue { left.min(claim.lease / 3) } else { left };
        Ok(Attempt::Busy(Busy::new(None, recheck_within)))
    }

    /// When all were renewed; `None` if not all were, and perhaps some.
    async fn try_renew_together(&self, claims: &[Claim]) -> Result<Option<Moment>, Failure> {
        let mut lent = self.pool.lend().await?;
        let since = Moment::now();
        let kept = sqlx::raw_sql(self.statements.renew_together(claims)).execute(&mut *lent).await?;
        self.pool.give_back(lent);
        Ok((kept.rows_affected() == claims.len() as u64).then_some(since))
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
        if !self.crowd.waits_for(&claim.name) {
            let freed = sqlx::query(self.statements.release())
                .bind(claim.name.as_str().as_bytes())
                .bind(claim.owner.as_bytes().as_slice())
                .execute(&mut *lent)
                .await?;
            if freed.rows_affected() > 0 {
                self.pool.give_back(lent);
                return Ok(Released::Released);
            }
        }
        Box::pin(self.leave(lent, claim)).await
    }

    async fn leave(&self, lent: Lent, claim: &Claim) -> Result<Released, Failure> {
        let decided = decide(lent, self.statements.leave(claim, self.bell.nonce())).await?;
        let row = self.conclude(claim, decided, 1).await?;
        let was_there: i64 = row.try_get_unchecked(0)?;
        Ok(if was_there != 0 { Released::Released } else { Released::Absent })
    }

    /// Notes how many wait, and sees to it that whoever got the lock is told; both are in the columns of
    /// the row from this one on.
    async fn conclude(
        &self,
        claim: &Claim,
        Decided { row, end }: Decided,
        first: usize,
    ) -> Result<MySqlRow, Failure> {
        let waiting: i64 = row.try_get_unchecked(first)?;
        self.crowd.learn(&claim.name, waiting > 0);
        let owner: Option<Vec<u8>> = row.try_get_unchecked(first + 1)?;
        let owner = owner.and_then(|owner| Some(Owner::from_bytes(owner.try_into().ok()?)));
        let nonce: Option<String> = row.try_get_unchecked(first + 2)?;
        match owner.zip(nonce.map(Nonce)) {
            Some((owner, bell)) => self.bell.ring(Promoted { name: claim.name.clone(), owner, bell }, end),
            None => {
                let (lent, told) = end.await;
                // There was none to ring.
                if told.is_ok() {
                    self.pool.give_back(lent);
                }
            }
        }
        Ok(row)
    }
}

/// What a transaction led to.
struct Decided {
    /// Its one row, which the server sends after the commit.
    row: MySqlRow,
    end: End,
}

/// Resolves when the whole text has run: the connection, and whether the bell of who got the lock was heard.
pub(crate) type End = Pin<Box<dyn Future<Output = (Lent, Result<bool, Failure>)> + Send>>;

/// Runs a transaction, until its row is there.
async fn decide(mut lent: Lent, transaction: Transaction) -> Result<Decided, Failure> {
    let (sender, row) = oneshot::channel();
    let end: End = Box::pin(async move {
        let mut sender = Some(sender);
        let mut answers = transaction.send(&mut lent);
        let told = loop {
            match answers.try_next().await {
                Ok(Some(Either::Left(_))) => {}
                // Whoever waits for it polls this future.
                Ok(Some(Either::Right(row))) => drop(sender.take().map(|sender| sender.send(Ok(row)))),
                Ok(None) => break Ok(()),
                Err(error) => break Err(Failure::from(error)),
            }
        };
        drop(answers);
        let Some(sender) = sender else { return (lent, heard(told)) };
        // There was no row, so that is what went wrong.
        let _ = sender.send(Err(told.err().unwrap_or_else(|| unexpected().into())));
        (lent, Ok(false))
    });
    let (row, end) = match select(row, end).await {
        future::Either::Left((row, end)) => (row, end),
        future::Either::Right((ended, row)) => (row.await, Box::pin(ready(ended)) as End),
    };
    // It is not dropped without a word.
    Ok(Decided { row: row.map_err(|_| unexpected())??, end })
}

/// # Errors
///
/// `Foreign` if the statement did not tell its token, as on a table with triggers.
fn held(claim: &Claim, token: u64, since: Moment) -> Result<Attempt, Failure> {
    if token == 0 {
        let text = "mysql told no fencing token: the table must have no triggers";
        return Err(Error::new(ErrorKind::Foreign, text).into());
    }
    Ok(Attempt::Held(Grant::new(FencingToken::new(token), lease(claim, since))))
}

fn lease(claim: &Claim, since: Moment) -> Lease {
    Lease::new(since, Duration::from_micros(Statements::length(claim.lease)))
}
