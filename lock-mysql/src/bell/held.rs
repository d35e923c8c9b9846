use std::time::Duration;

use lock_core::{FencingToken, Grant, Lease, Moment};
use sqlx::{Row, mysql::MySqlRow};

use super::Listener;
use crate::error::Failure;

/// What the row of a lock says.
#[derive(Debug)]
pub(super) struct Held {
    name: Vec<u8>,
    owner: Vec<u8>,
    token: FencingToken,
    left: Duration,
    /// A moment before the row was read.
    since: Moment,
}

impl Held {
    pub(super) fn read(row: &MySqlRow, since: Moment) -> Result<Self, Failure> {
        // It may have run out.
        let left: i64 = row.try_get_unchecked(3)?;
        Ok(Self {
            name: row.try_get_unchecked(0)?,
            owner: row.try_get_unchecked(1)?,
            token: FencingToken::new(row.try_get_unchecked(2)?),
            left: Duration::from_micros(u64::try_from(left).unwrap_or(0)),
            since,
        })
    }

    pub(super) fn is_of(&self, listener: &Listener) -> bool {
        self.name == listener.name.as_str().as_bytes() && self.owner == listener.owner.as_bytes()
    }

    /// The lease was asked for when the claim took or kept its place: so it counts from there.
    pub(super) fn grant(&self, lease: Duration) -> Grant {
        Grant::new(self.token, Lease::new(self.since - lease.saturating_sub(self.left), lease))
    }
}
