use std::{sync::Arc, time::Duration};

use futures_util::stream::BoxStream;
use lock_core::{Claim, Name};
use sqlx::{
    AssertSqlSafe, Either, Executor, MySqlConnection,
    mysql::{MySqlQueryResult, MySqlRow},
};

use crate::{bell::Nonce, table::Table};

/// The answers to several statements in one text.
type Answers<'a> = BoxStream<'a, sqlx::Result<Either<MySqlQueryResult, MySqlRow>>>;

/// The longest lease that the server is asked for: a hundred years.
const LONGEST: Duration = Duration::from_hours(100 * 365 * 24);

/// The server's clock in microseconds: the least that a new fencing token is.
const MICROSECONDS: &str = "CAST(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AS UNSIGNED)";

/// How long a bell's connection sleeps at a time. A server that has lost its client without a word keeps the
/// connection for so long.
const NAP: Duration = Duration::from_secs(60);

/// The text of every statement.
///
/// What a lock costs that nobody waits for has parameters, and is prepared once for each connection. All
/// else is decided by the server in one transaction that is sent as one text: a client that is stopped or
/// cut off in its midst cannot keep the row locked, and it takes one round trip. MariaDB takes such a text as
/// one statement, which is prepared, too; MySQL can not, so that what is written into its texts are numbers and
/// the hexadecimal digits of bytes.
#[derive(Debug)]
pub(crate) struct Statements {
    acquire: Arc<str>,
    renew: Arc<str>,
    release: Arc<str>,
    contend: [Arc<str>; 4],
    leave: Arc<str>,
    compound: bool,
    leases: String,
    migration: String,
}

impl Statements {
    /// `compound` if the server knows statements of several statements.
    pub(crate) fn new(table: &Table, compound: bool) -> Self {
        let leases = table.leases();
        let of_this_table = |text: &str| text.trim_end().replace("`polylock`", &format!("`{leases}`")).into();
        let whole = |body: String| -> Arc<str> {
            if compound {
                format!("BEGIN NOT ATOMIC SET {PLACEHOLDERS}, {body}; END").into()
            } else {
                body.into()
            }
        };
        Self {
            // Assignments run from left to right: the token is decided while owner and deadline are the old
            // ones. The row's own counter is enough for as long as the row is there. The clock is what keeps
            // tokens growing after the table was lost or restored from a copy.
            acquire: of_this_table(include_str!("statements/acquire.sql")),
            renew: of_this_table(include_str!("statements/renew.sql")),
            release: of_this_table(include_str!("statements/release.sql")),
            contend: [(false, false), (false, true), (true, false), (true, true)]
                .map(|(queue, make)| whole(contend(table, compound, queue, make))),
            leave: whole(leave(table, compound)),
            compound,
            leases: leases.into(),
            migration: table.migration(),
        }
    }

    /// Takes a free lock that nobody waits for, or keeps one's own.
    pub(crate) fn acquire(&self) -> AssertSqlSafe<Arc<str>> {
        AssertSqlSafe(self.acquire.clone())
    }

    pub(crate) fn renew(&self) -> AssertSqlSafe<Arc<str>> {
        AssertSqlSafe(self.renew.clone())
    }

    /// Renews claims of one lease. No owner is another name's, so that the two lists fit together in one way.
    ///
    /// MySQL looks once a second for waits that have taken too long: those for a stranger's row, and those for the
    /// rows that such a statement has locked meanwhile, would end in the same moment. So it leaves out what is locked.
    pub(crate) fn renew_together(&self, claims: &[Claim]) -> AssertSqlSafe<String> {
        let list = |each: &dyn Fn(&Claim) -> String| claims.iter().map(each).collect::<Vec<_>>().join(", ");
        let (leases, names) = (&self.leases, list(&|claim| hex(claim.name.as_str())));
        let (rows, condition) = if self.compound {
            (format!("`{leases}`"), format!("name IN ({names})"))
        } else {
            // The limit keeps the inner query apart, which would lose its lock clause otherwise; and a row that it
            // did not find must not be looked at.
            let free =
                format!("SELECT name AS free FROM `{leases}` WHERE name IN ({names}) LIMIT {}", claims.len());
            let rows = format!(
                "({free} FOR UPDATE SKIP LOCKED) AS unlocked STRAIGHT_JOIN `{leases}` FORCE INDEX (PRIMARY)"
            );
            (rows, "name = free".into())
        };
        AssertSqlSafe(format!(
            "UPDATE {rows} SET deadline = UTC_TIMESTAMP(6) + INTERVAL {} MICROSECOND, version = version + 1 \
             WHERE {condition} AND owner IN ({}) AND deadline > UTC_TIMESTAMP(6)",
            claims.first().map_or(1, |claim| Self::length(claim.lease)),
            list(&|claim| hex(claim.owner.as_bytes())),
        ))
    }

    /// Gives up a lock that nobody waits for.
    pub(crate) fn release(&self) -> AssertSqlSafe<Arc<str>> {
        AssertSqlSafe(self.release.clone())
    }

    pub(crate) fn migration(&self) -> AssertSqlSafe<String> {
        AssertSqlSafe(self.migration.clone())
    }

    /// Takes the lock, keeps it, or finds it busy and takes or keeps a place in the queue. A lock that is
    /// free goes to the first in the queue, who is told.
    ///
    /// Its one row: whether the lock is held now, the token, how long another has it, whether the row was
    /// there; then whether more wait, who got the lock, and that one's bell. If the row is not there, the
    /// caller has to ask again for it to be `make`d first.
    pub(crate) fn contend(&self, claim: &Claim, bell: Option<Nonce>, make: bool) -> Transaction {
        let body = &self.contend[usize::from(claim.queue) * 2 + usize::from(make)];
        Transaction { body: body.clone(), compound: self.compound, claim: claim.clone(), bell }
    }

    /// Gives up the lock or the place in the queue; a lock that is free goes to the first in the queue, who
    /// is told unless it listens to our own bell.
    ///
    /// Its one row: whether the claim was there; then whether more wait, who got the lock, and that one's bell.
    pub(crate) fn leave(&self, claim: &Claim, bell: Option<Nonce>) -> Transaction {
        Transaction { body: self.leave.clone(), compound: self.compound, claim: claim.clone(), bell }
    }

    /// Ends the sleep of a waiter's connection. Error 1094 says that none sleeps.
    pub(crate) fn ring(&self, Nonce(nonce): &Nonce) -> AssertSqlSafe<String> {
        AssertSqlSafe(format!("KILL QUERY IS_USED_LOCK('polylock_{nonce}')"))
    }

    /// Gives up the bell's lock, reads who [holds](Self::holders), and sleeps with the lock taken.
    ///
    /// The second of its three statements has the holders' rows.
    pub(crate) fn nap(&self, bell: &Nonce, names: &[Name]) -> AssertSqlSafe<String> {
        let (Nonce(nonce), holders) = (bell, self.holders(names).0);
        AssertSqlSafe(format!(
            "DO RELEASE_LOCK('polylock_{nonce}'); {holders}; \
             SELECT GET_LOCK('polylock_{nonce}', 0), SLEEP({})",
            NAP.as_secs()
        ))
    }

    /// Who holds these locks: name, owner, token, and how many microseconds of the lease are left.
    pub(crate) fn holders(&self, names: &[Name]) -> AssertSqlSafe<String> {
        // A list must not be empty.
        let names = names.iter().map(|name| hex(name.as_str())).chain(["NULL".into()]);
        let names = names.collect::<Vec<_>>().join(", ");
        AssertSqlSafe(format!(
            "SELECT name, owner, fence, \
             CAST(TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), deadline) AS SIGNED) \
             FROM `{}` WHERE name IN ({names}) AND owner IS NOT NULL",
            self.leases
        ))
    }

    /// The prepared statement's parameter for a lease: microseconds, rounded up.
    pub(crate) fn length(lease: Duration) -> u64 {
        let whole = lease.min(LONGEST).as_nanos().div_ceil(1_000).max(1);
        u64::try_from(whole).unwrap_or(u64::MAX)
    }
}

/// A transaction for a claim.
#[derive(Debug)]
pub(crate) struct Transaction {
    body: Arc<str>,
    compound: bool,
    claim: Claim,
    bell: Option<Nonce>,
}

impl Transaction {
    /// Sends it. Its row comes after the commit; an error after that is about the bell.
    pub(crate) fn send<'a>(&'a self, connection: &'a mut MySqlConnection) -> Answers<'a> {
        let Claim { name, owner, label, lease, .. } = &self.claim;
        let (name, owner, label) = (name.as_str().as_bytes(), owner.as_bytes().as_slice(), label.as_bytes());
        let (lease, bell) =
            (Statements::length(*lease), self.bell.as_ref().map(|Nonce(nonce)| nonce.as_bytes()));
        if self.compound {
            let query = sqlx::query(AssertSqlSafe(self.body.clone()));
            return connection.fetch_many(query.bind(name).bind(owner).bind(label).bind(lease).bind(bell));
        }
        let bell = bell.map_or_else(|| "NULL".into(), hex);
        let (name, owner, label) = (hex(name), hex(owner), hex(label));
        connection.fetch_many(sqlx::raw_sql(AssertSqlSafe(format!(
            "SET @name = {name}, @me = {owner}, @label = {label}, @lease = {lease}, @bell = {bell}, {}",
            self.body
        ))))
    }
}

/// What a transaction is given.
const PLACEHOLDERS: &str = "@name = ?, @me = ?, @label = ?, @lease = ?, @bell = ?";

/// Deadline of a claim that asks now.
const UNTIL: &str = "UTC_TIMESTAMP(6) + INTERVAL @lease MICROSECOND";

/// Whether a claim that contends gets the lock.
const TAKE: &str = "(NOT @held AND COALESCE(@first = @me, @known))";

/// Who else gets it.
const NEXT: &str = "IF(@held, NULL, NULLIF(@first, @me))";

/// Whether places that have run out are cleared away: in a lock that changes hands, and by who asks once more.
/// Where every statement runs, always.
const SWEEP: &str = "(NOT @held OR @mine OR @again)";

/// After [`look`] and [`first`] nothing changes until the commit: whoever changes the row, or its queue, has
/// the lock on the row.
fn contend(table: &Table, compound: bool, queue: bool, make: bool) -> String {
    let (leases, places) = (table.leases(), table.queue());
    let make =
        if make { format!("INSERT IGNORE INTO `{leases}` (name) VALUES (@name); ") } else { String::new() };
    let count = format!("(SELECT COUNT(*) FROM `{places}` WHERE name = @name)");
    let (place, mine, only) = if queue {
        (place(&places, compound), "@mine", String::new())
    } else {
        (String::new(), "1", format!(" AND (@mine OR NOT @held OR @again AND waiting <> {count})"))
    };
    let (look, ring) = (look(leases), ring(compound, NEXT));
    let first = when(compound, "NOT @held", &first(&places, "NOT @held"));
    let sweep = format!(
        "DELETE FROM `{places}` WHERE name = @name AND (deadline <= UTC_TIMESTAMP(6) \
         OR NOT @held AND owner = @first OR {mine} AND owner = @me)"
    );
    let sweep = when(compound, SWEEP, &sweep);
    let again = i32::from(!compound);
    format!(
        "{RESET}, @again = {again}; {make}{look}; {first}; {place}{sweep}; \
         UPDATE `{leases}` SET \
         fence = LAST_INSERT_ID(IF(@held, fence, GREATEST(fence + 1, {MICROSECONDS}))), \
         owner = IF(@held, owner, COALESCE(@first, @me)), \
         label = IF(@held, label, IF({TAKE}, @label, @their_label)), \
         deadline = IF(@mine OR {TAKE}, {UNTIL}, IF(@held, deadline, @until)), \
         waiting = IF({SWEEP}, {count}, waiting + 1), version = version + 1 \
         WHERE name = @name{only}; \
         COMMIT; \
         SELECT @mine OR {TAKE}, LAST_INSERT_ID(), \
         CAST(IF(@held, @left, TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), @until)) AS SIGNED), \
         CAST(@known AS SIGNED), \
         @waiting > 1, {NEXT}, IF({NEXT} IS NULL, NULL, @nonce); \
         {ring}"
    )
}

/// Takes a place in the queue, or keeps it, for a claim that has to wait.
fn place(places: &str, compound: bool) -> String {
    let waits = format!("@known AND NOT @mine AND NOT {TAKE}");
    let place = format!("@name, @me, @label, @ticket, {UNTIL}, @bell");
    // The count is two for a row that was there.
    let (place, again) = if compound {
        (format!("VALUES ({place})"), "SET @again = ROW_COUNT() > 1; ")
    } else {
        (format!("SELECT {place} FROM DUAL WHERE {waits}"), "")
    };
    let insert = format!(
        "INSERT INTO `{places}` (name, owner, label, ticket, deadline, nonce) {place} \
         ON DUPLICATE KEY UPDATE ticket = IF(deadline > UTC_TIMESTAMP(6), ticket, @ticket), \
         deadline = {UNTIL}, nonce = @bell"
    );
    format!("{}; {again}", when(compound, &waits, &insert))
}

fn leave(table: &Table, compound: bool) -> String {
    let (leases, places) = (table.leases(), table.queue());
    let (look, ring) = (look(leases), ring(compound, "@first"));
    let first = first(&places, "owner <> @me AND @known AND (@mine OR NOT @held)");
    // A place that has run out is not there any more; others clear it away.
    format!(
        "{RESET}; {look}; {first}; \
         DELETE FROM `{places}` WHERE name = @name AND owner IN (@me, @first) \
         AND deadline > UTC_TIMESTAMP(6); \
         SET @gone = ROW_COUNT(); \
         UPDATE `{leases}` SET \
         fence = IF(@first IS NULL, fence, GREATEST(fence + 1, {MICROSECONDS})), \
         owner = IF(@mine OR @first IS NOT NULL, @first, owner), \
         label = IF(@first IS NULL, IF(@mine, '', label), @their_label), \
         deadline = IF(@first IS NULL, IF(@mine, '1970-01-01', deadline), @until), \
         waiting = GREATEST(CAST(waiting AS SIGNED) - @gone, 0), version = version + 1 \
         WHERE name = @name; \
         COMMIT; \
         SELECT @mine OR @gone > (@first IS NOT NULL), @waiting > @gone, @first, @nonce; \
         {ring}"
    )
}

/// What stays so where no row is found.
const RESET: &str = "@known = 0, @held = 0, @mine = 0, @left = 0, @ticket = 0, @waiting = 0, \
                     @first = NULL, @their_label = NULL, @until = NULL, @nonce = NULL";

/// Starts a transaction, locks the row and reads what it says.
fn look(leases: &str) -> String {
    format!(
        "START TRANSACTION; \
         SELECT 1, deadline > UTC_TIMESTAMP(6), deadline > UTC_TIMESTAMP(6) AND owner <=> @me, \
         TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), deadline), version, waiting \
         INTO @known, @held, @mine, @left, @ticket, @waiting FROM `{leases}` WHERE name = @name FOR UPDATE"
    )
}

/// Reads what goes from the first place in the queue to the lock, its lease first of all.
fn first(places: &str, condition: &str) -> String {
    format!(
        "SELECT owner, label, deadline, nonce INTO @first, @their_label, @until, @nonce \
         FROM `{places}` FORCE INDEX (turn) \
         WHERE name = @name AND deadline > UTC_TIMESTAMP(6) AND {condition} ORDER BY ticket LIMIT 1"
    )
}

/// Rings the bell of who got the lock, unless it is our own. Nobody has the number 0.
fn ring(compound: bool, next: &str) -> String {
    let rings = format!("{next} IS NOT NULL AND @nonce IS NOT NULL AND NOT @nonce <=> @bell");
    let ring = format!("KILL QUERY IF({rings}, IS_USED_LOCK(CONCAT('polylock_', @nonce)), 0)");
    when(compound, &rings, &ring)
}

/// A statement that does nothing, or nothing that is needed, unless this is so: where the server can, it is left out
/// then.
fn when(compound: bool, condition: &str, statement: &str) -> String {
    if compound { format!("IF {condition} THEN {statement}; END IF") } else { statement.into() }
}

/// Bytes as a literal that no character set, mode or quote can change.
fn hex(bytes: impl AsRef<[u8]>) -> String {
    let mut text = String::from("X'");
    for byte in bytes.as_ref() {
        for digit in [byte >> 4, byte & 15] {
            text.push(char::from_digit(digit.into(), 16).unwrap_or('0'));
        }
    }
    text.push('\'');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_rounded_up_to_microseconds_and_never_zero() {
        for (lease, expected) in [
            (Duration::ZERO, 1),
            (Duration::from_nanos(1), 1),
            (Duration::from_nanos(1_001), 2),
            (Duration::from_secs(30), 30_000_000),
            (Duration::MAX, 3_153_600_000_000_000),
        ] {
            assert_eq!(Statements::length(lease), expected, "{lease:?}");
        }
    }

    #[test]
    fn a_literal_has_digits_only() {
        assert_eq!(hex("a'\0\u{e9}"), "X'6127 00c3a9'".replace(' ', ""));
    }
}
