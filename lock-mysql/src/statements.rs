use std::{sync::Arc, time::Duration};

use lock_core::{Claim, Name, Owner};
use sqlx::AssertSqlSafe;

use crate::{
    bell::Clapper,
    table::Table,
    transaction::{Change, Waiter},
};

/// The longest lease that the server is asked for: a hundred years.
const LONGEST: Duration = Duration::from_hours(100 * 365 * 24);

/// The server's clock in microseconds: the least that a new fencing token is.
const MICROSECONDS: &str = "CAST(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AS UNSIGNED)";

/// The text of every statement.
///
/// What has parameters is prepared once for each connection. Transactions are sent as two texts of several
/// statements each, so that they cost two round trips; all that is written into those are numbers and the
/// hexadecimal digits of bytes.
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
        // Assignments run from left to right: the token is decided while owner and deadline are the old
        // ones. The row's own counter is enough for as long as the row is there. The clock is what keeps
        // tokens growing after the table was lost or restored from a copy.
        let acquire = format!(
            "UPDATE `{leases}` SET \
             fence = LAST_INSERT_ID(IF(owner = ? AND deadline > UTC_TIMESTAMP(6), fence, \
             GREATEST(fence + 1, {MICROSECONDS}))), \
             owner = ?, label = ?, deadline = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, version = version + 1 \
             WHERE name = ? AND ((deadline <= UTC_TIMESTAMP(6) AND waiting = 0) \
             OR (owner = ? AND deadline > UTC_TIMESTAMP(6)))"
        );
        let renew = format!(
            "UPDATE `{leases}` SET \
             deadline = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, version = version + 1 \
             WHERE name = ? AND owner = ? AND deadline > UTC_TIMESTAMP(6)"
        );
        let release = format!(
            "UPDATE `{leases}` SET owner = NULL, label = '', deadline = '1970-01-01', version = version + 1 \
             WHERE name = ? AND owner = ? AND deadline > UTC_TIMESTAMP(6) AND waiting = 0"
        );
        Self {
            acquire: acquire.into(),
            renew: renew.into(),
            release: release.into(),
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

    /// Makes the row of a name that was never locked before.
    pub(crate) fn make(&self, name: &Name) -> AssertSqlSafe<String> {
        AssertSqlSafe(format!("INSERT IGNORE INTO `{}` (name) VALUES ({})", self.leases, hex(name.as_str())))
    }

    /// Starts a transaction, and locks and reads all that is known of a name.
    ///
    /// The queue is read without locks of its own: whoever changes it has the lock on the lease's row.
    pub(crate) fn look(&self, name: &Name) -> AssertSqlSafe<String> {
        let (leases, queue, name) = (&self.leases, &self.queue, hex(name.as_str()));
        let left = "TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), deadline)";
        AssertSqlSafe(format!(
            "START TRANSACTION; \
             SELECT {left}, owner, version FROM `{leases}` WHERE name = {name} FOR UPDATE; \
             SELECT {left}, owner, ticket, label, connection, nonce FROM `{queue}` \
             WHERE name = {name} ORDER BY ticket"
        ))
    }

    /// Makes the changes and ends the transaction.
    pub(crate) fn commit(&self, name: &Name, changes: &[Change<'_>]) -> AssertSqlSafe<String> {
        let mut text = String::new();
        for change in changes {
            text += &self.change(&hex(name.as_str()), change);
            text += "; ";
        }
        text += "COMMIT";
        AssertSqlSafe(text)
    }

    fn change(&self, name: &str, change: &Change<'_>) -> String {
        let (leases, queue) = (&self.leases, &self.queue);
        match change {
            Change::Leave(owners) => {
                let owners: Vec<_> = owners.iter().map(|owner| hex(owner)).collect();
                format!("DELETE FROM `{queue}` WHERE name = {name} AND owner IN ({})", owners.join(", "))
            }
            Change::Queue { claim, ticket, bell } => {
                let (connection, nonce) = bell.as_ref().map_or_else(
                    || ("NULL".to_owned(), "NULL".to_owned()),
                    |Clapper { connection, nonce }| (connection.to_string(), hex(nonce)),
                );
                let (owner, label) = (hex(claim.owner.as_bytes()), hex(&*claim.label));
                let deadline = deadline(claim);
                format!(
                    "REPLACE INTO `{queue}` (name, owner, label, ticket, deadline, connection, nonce) \
                     VALUES ({name}, {owner}, {label}, {ticket}, {deadline}, {connection}, {nonce})"
                )
            }
            Change::Take { claim, waiting } => {
                let (owner, label) = (hex(claim.owner.as_bytes()), hex(&*claim.label));
                let deadline = deadline(claim);
                format!(
                    "UPDATE `{leases}` SET fence = LAST_INSERT_ID(GREATEST(fence + 1, {MICROSECONDS})), \
                     owner = {owner}, label = {label}, deadline = {deadline}, waiting = {waiting}, \
                     version = version + 1 WHERE name = {name}; SELECT LAST_INSERT_ID()"
                )
            }
            Change::Keep { claim, waiting } => {
                let deadline = deadline(claim);
                format!(
                    "UPDATE `{leases}` SET fence = LAST_INSERT_ID(fence), deadline = {deadline}, \
                     waiting = {waiting}, version = version + 1 WHERE name = {name}; SELECT LAST_INSERT_ID()"
                )
            }
            Change::Promote { waiter: Waiter { owner, label, .. }, waiting } => {
                let (owner, label) = (hex(owner), hex(label));
                // The lease of its place in the queue becomes that of the lock.
                format!(
                    "UPDATE `{leases}` SET fence = GREATEST(fence + 1, {MICROSECONDS}), owner = {owner}, \
                     label = {label}, deadline = (SELECT deadline FROM `{queue}` \
                     WHERE name = {name} AND owner = {owner}), waiting = {waiting}, version = version + 1 \
                     WHERE name = {name}; DELETE FROM `{queue}` WHERE name = {name} AND owner = {owner}"
                )
            }
            Change::Free { waiting } => format!(
                "UPDATE `{leases}` SET owner = NULL, label = '', deadline = '1970-01-01', \
                 waiting = {waiting}, version = version + 1 WHERE name = {name}"
            ),
            Change::Count { waiting } => format!(
                "UPDATE `{leases}` SET waiting = {waiting}, version = version + 1 WHERE name = {name}"
            ),
        }
    }

    /// Whether the bell hangs, and then who holds these locks.
    pub(crate) fn sweep<'a>(
        &self,
        bell: &Clapper,
        names: impl Iterator<Item = &'a Name>,
    ) -> AssertSqlSafe<String> {
        let names: Vec<_> = names.map(|name| hex(name.as_str())).collect();
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

fn deadline(claim: &Claim) -> String {
    format!("UTC_TIMESTAMP(6) + INTERVAL {} MICROSECOND", Statements::length(claim.lease))
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

/// An owner as the server has it; `None` for what is none.
pub(crate) fn owner(bytes: &[u8]) -> Option<Owner> {
    Some(Owner::from_bytes(bytes.try_into().ok()?))
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
