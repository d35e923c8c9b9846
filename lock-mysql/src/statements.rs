use std::{sync::Arc, time::Duration};

use lock_core::{Claim, Name};
use sqlx::AssertSqlSafe;

use crate::{bell::Clapper, table::Table};

/// The longest lease that the server is asked for: a hundred years.
const LONGEST: Duration = Duration::from_hours(100 * 365 * 24);

/// The server's clock in microseconds: the least that a new fencing token is.
const MICROSECONDS: &str = "CAST(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AS UNSIGNED)";

/// How much is left of a lease, in microseconds.
const LEFT: &str = "TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), deadline)";

/// The text of every statement.
///
/// What a lock costs that nobody waits for has parameters, and is prepared once for each connection. All
/// else is decided by the server in one transaction that is sent as one text: a client that is stopped or
/// cut off in its midst cannot keep the row locked, and it takes one round trip. All that is written into
/// a text are numbers and the hexadecimal digits of bytes.
#[derive(Debug)]
pub(crate) struct Statements {
    acquire: Arc<str>,
    renew: Arc<str>,
    release: Arc<str>,
    leases: String,
    queue: String,
    migration: String,
}

impl Statements {
    pub(crate) fn new(table: &Table) -> Self {
        let (leases, queue) = (table.leases(), table.queue());
        let of_this_table = |text: &str| text.trim_end().replace("`polylock`", &format!("`{leases}`")).into();
        Self {
            // Assignments run from left to right: the token is decided while owner and deadline are the old
            // ones. The row's own counter is enough for as long as the row is there. The clock is what keeps
            // tokens growing after the table was lost or restored from a copy.
            acquire: of_this_table(include_str!("statements/acquire.sql")),
            renew: of_this_table(include_str!("statements/renew.sql")),
            release: of_this_table(include_str!("statements/release.sql")),
            leases: leases.into(),
            queue,
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

    /// Gives up a lock that nobody waits for.
    pub(crate) fn release(&self) -> AssertSqlSafe<Arc<str>> {
        AssertSqlSafe(self.release.clone())
    }

    pub(crate) fn migration(&self) -> AssertSqlSafe<String> {
        AssertSqlSafe(self.migration.clone())
    }

    /// Takes the lock, keeps it, or finds it busy and takes or keeps a place in the queue. A lock that is
    /// free goes to the first in the queue.
    ///
    /// Its one row: whether the lock is held now, the token, how long another has it, how many stand in
    /// front, and who [got it](Self::promoted).
    pub(crate) fn contend(&self, claim: &Claim, bell: Option<&Clapper>) -> AssertSqlSafe<String> {
        let Self { leases, queue, .. } = self;
        let (name, owner, label) =
            (hex(claim.name.as_str()), hex(claim.owner.as_bytes()), hex(&*claim.label));
        let until = format!("UTC_TIMESTAMP(6) + INTERVAL {} MICROSECOND", Self::length(claim.lease));
        let (connection, nonce) = bell.map_or_else(
            || ("NULL".to_owned(), "NULL".to_owned()),
            |Clapper { connection, nonce }| (connection.to_string(), hex(nonce)),
        );
        let place = if claim.queue {
            format!(
                "SELECT COALESCE(MAX(ticket), 0) + 1 INTO @ticket FROM `{queue}` WHERE name = {name}; \
                 INSERT INTO `{queue}` (name, owner, label, ticket, deadline, connection, nonce) \
                 SELECT {name}, {owner}, {label}, @ticket, {until}, {connection}, {nonce} FROM DUAL \
                 WHERE NOT @keep AND NOT @take \
                 ON DUPLICATE KEY UPDATE deadline = {until}, connection = {connection}, nonce = {nonce}; \
                 DELETE FROM `{queue}` WHERE name = {name} AND owner = {owner} AND (@keep OR @take)"
            )
        } else {
            format!("DELETE FROM `{queue}` WHERE name = {name} AND owner = {owner}")
        };
        let (look, first, promoted) = (self.look(&name), self.first(&name), self.promoted(&name));
        AssertSqlSafe(format!(
            "INSERT IGNORE INTO `{leases}` (name) VALUES ({name}); \
             {look}; \
             SET @keep = @held AND @holder <=> {owner}; \
             SET @first = ({first}); \
             SET @take = NOT @held AND (@first IS NULL OR @first = {owner}); \
             SET @next = IF(@held OR @take, NULL, @first); \
             {place}; \
             {promoted}; \
             UPDATE `{leases}` SET \
             fence = LAST_INSERT_ID(IF(@take OR @next IS NOT NULL, GREATEST(fence + 1, {MICROSECONDS}), fence)), \
             owner = IF(@take, {owner}, COALESCE(@next, owner)), \
             label = IF(@take, {label}, COALESCE(@label, label)), \
             deadline = IF(@keep OR @take, {until}, COALESCE(@until, deadline)), \
             waiting = @waiting, version = version + 1 \
             WHERE name = {name} AND (@keep OR @take OR @next IS NOT NULL OR waiting <> @waiting); \
             SELECT COUNT(*) INTO @front FROM `{queue}` WHERE name = {name} AND NOT owner <=> @next \
             AND ticket < (SELECT ticket FROM `{queue}` WHERE name = {name} AND owner = {owner}); \
             DELETE FROM `{queue}` WHERE name = {name} AND owner = @next; \
             COMMIT; \
             SELECT @keep OR @take, LAST_INSERT_ID(), @left, @front, @next, @connection, @nonce"
        ))
    }

    /// Gives up the lock or the place in the queue; a lock that is free goes to the first in the queue.
    ///
    /// Its one row: whether the claim was there, and who [got it](Self::promoted).
    pub(crate) fn leave(&self, claim: &Claim) -> AssertSqlSafe<String> {
        let Self { leases, queue, .. } = self;
        let (name, owner) = (hex(claim.name.as_str()), hex(claim.owner.as_bytes()));
        let (look, first, promoted) = (self.look(&name), self.first(&name), self.promoted(&name));
        AssertSqlSafe(format!(
            "{look}; \
             SET @mine = @held AND @holder <=> {owner}; \
             DELETE FROM `{queue}` WHERE name = {name} AND owner = {owner}; \
             SET @left_the_queue = ROW_COUNT() > 0; \
             SET @next = IF(@known AND (@mine OR NOT @held), ({first}), NULL); \
             {promoted}; \
             UPDATE `{leases}` SET \
             fence = IF(@next IS NULL, fence, GREATEST(fence + 1, {MICROSECONDS})), \
             owner = IF(@mine, @next, COALESCE(@next, owner)), \
             label = COALESCE(@label, IF(@mine, '', label)), \
             deadline = COALESCE(@until, IF(@mine, '1970-01-01', deadline)), \
             waiting = @waiting, version = version + 1 \
             WHERE name = {name} AND (@mine OR @next IS NOT NULL OR waiting <> @waiting); \
             DELETE FROM `{queue}` WHERE name = {name} AND owner = @next; \
             COMMIT; \
             SELECT @mine OR @left_the_queue, @next, @connection, @nonce"
        ))
    }

    /// Starts a transaction, locks the row, and removes the places that have run out. The queue needs no
    /// locks: whoever changes it has the one on the row.
    fn look(&self, name: &str) -> String {
        let Self { leases, queue, .. } = self;
        format!(
            "SET @known = 0, @held = 0, @holder = NULL, @left = 0; \
             START TRANSACTION; \
             SELECT 1, deadline > UTC_TIMESTAMP(6), owner, {LEFT} INTO @known, @held, @holder, @left \
             FROM `{leases}` WHERE name = {name} FOR UPDATE; \
             DELETE FROM `{queue}` WHERE name = {name} AND deadline <= UTC_TIMESTAMP(6)"
        )
    }

    fn first(&self, name: &str) -> String {
        format!("SELECT owner FROM `{}` WHERE name = {name} ORDER BY ticket LIMIT 1", self.queue)
    }

    /// Reads what goes from the place of `@next` to the lock, its lease first of all, and how many places
    /// there are without it.
    fn promoted(&self, name: &str) -> String {
        let queue = &self.queue;
        format!(
            "SET @label = NULL, @until = NULL, @connection = NULL, @nonce = NULL; \
             SELECT label, deadline, {LEFT}, connection, nonce \
             INTO @label, @until, @left, @connection, @nonce \
             FROM `{queue}` WHERE name = {name} AND owner = @next; \
             SELECT COUNT(*) INTO @waiting FROM `{queue}` WHERE name = {name} AND NOT owner <=> @next"
        )
    }

    /// Whether the bell hangs, and then who holds these locks.
    pub(crate) fn sweep<'a>(
        &self,
        bell: &Clapper,
        names: impl Iterator<Item = &'a Name>,
    ) -> AssertSqlSafe<String> {
        let mut names: Vec<_> = names.map(|name| hex(name.as_str())).collect();
        // A list must not be empty.
        names.push("NULL".into());
        let hangs = self.hangs(bell).0;
        AssertSqlSafe(format!(
            "{hangs}; SELECT name, owner FROM `{}` WHERE name IN ({})",
            self.leases,
            names.join(", ")
        ))
    }

    /// Whether a waiter's connection sleeps under its nonce. Servers count connections anew after a start,
    /// and other servers count their own, but no two draw the same nonce.
    pub(crate) fn hangs(&self, Clapper { connection, nonce }: &Clapper) -> AssertSqlSafe<String> {
        AssertSqlSafe(format!(
            "SELECT COUNT(*) FROM information_schema.processlist \
             WHERE id = {connection} AND info LIKE 'SELECT SLEEP(%{nonce}'"
        ))
    }

    /// The prepared statement's parameter for a lease: microseconds, rounded up.
    pub(crate) fn length(lease: Duration) -> u64 {
        let whole = lease.min(LONGEST).as_nanos().div_ceil(1_000).max(1);
        u64::try_from(whole).unwrap_or(u64::MAX)
    }
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
