use lock_core::{Error, Name, Result};

/// The table of the leases, and beside it that of the queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table(String);

impl Table {
    const SUFFIX: &str = "_queue";

    /// Checks a name: letters, digits and underscores, so that it needs no quoting anywhere.
    pub(crate) fn new(name: impl Into<String>) -> Result<Self> {
        let name = name.into();
        // A name has 64 characters at the most; that of the queue's table is longer than this one.
        let legal = (1..=64 - Self::SUFFIX.len()).contains(&name.len())
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if legal {
            return Ok(Self(name));
        }
        Err(Error::invalid_input("the table's name has 1 to 58 letters, digits and underscores"))
    }

    /// The table of the leases.
    pub(crate) fn leases(&self) -> &str {
        &self.0
    }

    /// The table of the queues.
    pub(crate) fn queue(&self) -> String {
        [&self.0, Self::SUFFIX].concat()
    }

    /// The row of a lock, as it stands behind `SELECT * FROM`.
    pub(crate) fn row(&self, database: &str, name: &Name) -> String {
        let (database, name) = (database.replace('`', "``"), name.as_str().replace('\'', "''"));
        format!("`{database}`.`{}` WHERE name = '{}'", self.0, name.replace('\\', "\\\\"))
    }

    /// What makes both tables.
    ///
    /// Names and owners are bytes: a collation would fold case and trailing blanks. Deadlines are UTC and
    /// have no time zone.
    pub(crate) fn migration(&self) -> String {
        let (leases, queue) = (self.leases(), self.queue());
        format!(
            "CREATE TABLE IF NOT EXISTS `{leases}` (
  name VARBINARY(255) NOT NULL PRIMARY KEY,
  owner BINARY(16) NULL,
  label VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '',
  fence BIGINT UNSIGNED NOT NULL DEFAULT 0,
  deadline DATETIME(6) NOT NULL DEFAULT '1970-01-01 00:00:00',
  waiting INT UNSIGNED NOT NULL DEFAULT 0,
  version BIGINT UNSIGNED NOT NULL DEFAULT 0
) ENGINE=InnoDB;
CREATE TABLE IF NOT EXISTS `{queue}` (
  name VARBINARY(255) NOT NULL,
  owner BINARY(16) NOT NULL,
  label VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  ticket BIGINT UNSIGNED NOT NULL,
  deadline DATETIME(6) NOT NULL,
  nonce CHAR(16) CHARACTER SET ascii COLLATE ascii_bin NULL,
  PRIMARY KEY (name, owner),
  KEY turn (name, ticket)
) ENGINE=InnoDB;
"
        )
    }
}

impl Default for Table {
    fn default() -> Self {
        Self("polylock".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_needs_quoting_is_refused() {
        for good in ["polylock", "A_1", &"x".repeat(58)] {
            assert_eq!(Table::new(good).unwrap().leases(), good);
        }
        for bad in ["", "a b", "a`b", "a.b", "é", &"x".repeat(59)] {
            assert!(Table::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_row_can_be_pasted_whatever_the_lock_is_called() {
        let row = Table::default().row("app", &Name::new(r"it's a \ 'b'").unwrap());
        assert_eq!(row, r"`app`.`polylock` WHERE name = 'it''s a \\ ''b'''");
    }
}
