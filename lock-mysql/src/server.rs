use lock_core::{Error, ErrorKind, Fairness, Fault, Faults, Guarantees, Owner, Result, Scope, Wakeup};
use sqlx::{AssertSqlSafe, Row};

use crate::{
    error::{Failure, from_sqlx},
    pool::{Lent, Pool},
    statements::Statements,
    table::Table,
};

/// What holds on every server, whatever its configuration.
pub(crate) fn least() -> Guarantees {
    let mut least = Guarantees::nothing("MySQL, MariaDB", Scope::Network);
    least.exclusion = Faults::of(&[Fault::HolderCrash, Fault::HolderPause, Fault::Partition]);
    // Without its data the server counts on from its clock; with its data, whatever the clock does. What
    // another server's clock or data say after a failover is not known.
    least.fencing = Faults::of(&[
        Fault::HolderCrash,
        Fault::HolderPause,
        Fault::Partition,
        Fault::ServerRestart,
        Fault::ServerClockStep,
        Fault::DataLoss,
    ]);
    least.fairness = Fairness::FifoByClaim;
    least
}

/// Makes the tables if they are not there, and tells what this server promises.
///
/// # Errors
///
/// `Denied`, with the statements to run, if this user may not make them; `Unsupported` if their engine has
/// no transactions.
pub(crate) async fn prepare(pool: &Pool, table: &Table) -> Result<(Guarantees, Statements)> {
    let mut lent = pool.lend().await?;
    let mut engines = engines(&mut lent, table).await?;
    if engines.len() < 2 {
        if let Err(error) = sqlx::raw_sql(AssertSqlSafe(table.migration())).execute(&mut *lent).await {
            let error = from_sqlx(error);
            let text = format!("{error}\nmake the tables with:\n{}", table.migration());
            return Err(Error::new(error.kind(), text));
        }
        engines = self::engines(&mut lent, table).await?;
    }
    if let Some(other) = engines.iter().find(|engine| !engine.eq_ignore_ascii_case("InnoDB")) {
        let text = format!("the tables of {} have the engine {other:?}; locks need InnoDB", table.leases());
        return Err(Error::new(ErrorKind::Unsupported, text));
    }
    let guarantees = guarantees(&mut lent).await.map_err(Error::from)?;
    let statements = Statements::new(table, is_mariadb(&mut lent).await.map_err(Error::from)?);
    pool.give_back(lent);
    Ok((guarantees, statements))
}

/// The engines of those of our tables that are there.
async fn engines(lent: &mut Lent, table: &Table) -> Result<Vec<String>> {
    let text = "SELECT COALESCE(engine, 'a view') FROM information_schema.tables \
                WHERE table_schema = DATABASE() AND table_name IN (?, ?)";
    let rows = sqlx::query(text).bind(table.leases()).bind(table.queue()).fetch_all(&mut **lent).await;
    let rows = rows.map_err(from_sqlx)?;
    rows.iter().map(|row| row.try_get_unchecked(0).map_err(from_sqlx)).collect()
}

async fn guarantees(lent: &mut Lent) -> Result<Guarantees, Failure> {
    let mut guarantees = least();
    // At 1 and 2 what was answered is in the operating system's hands when the process is killed.
    if matches!(setting(lent, "innodb_flush_log_at_trx_commit").await?.as_deref(), Some("1" | "2")) {
        guarantees.exclusion = guarantees.exclusion.with(Fault::ServerRestart);
    }
    // Another node of a cluster may grant what this one holds, until their writes meet.
    if setting(lent, "wsrep_on").await?.is_some_and(|on| on.eq_ignore_ascii_case("on")) {
        (guarantees.exclusion, guarantees.fencing) = (Faults::NONE, Faults::NONE);
    }
    if can_be_woken(lent).await {
        guarantees.wakeup = Wakeup::Push;
    }
    Ok(guarantees)
}

async fn is_mariadb(lent: &mut Lent) -> Result<bool, Failure> {
    let row = sqlx::raw_sql("SELECT VERSION()").fetch_one(&mut **lent).await?;
    Ok(row.try_get_unchecked::<String, _>(0)?.contains("MariaDB"))
}

/// A waiter is found by a lock of the server's own, which the nodes of a cluster may refuse, and woken by its
/// connection's number, which a proxy in between may have made up.
async fn can_be_woken(lent: &mut Lent) -> bool {
    let Ok(random) = Owner::random() else { return false };
    let name = format!("polylock_{}", &random.to_hex()[..16]);
    let probe = format!(
        "SELECT GET_LOCK('{name}', 0) AND IS_USED_LOCK('{name}') = CONNECTION_ID() AND RELEASE_LOCK('{name}')"
    );
    let row = sqlx::raw_sql(AssertSqlSafe(probe)).fetch_one(&mut **lent).await;
    row.and_then(|row| row.try_get_unchecked::<i64, _>(0)).is_ok_and(|works| works == 1)
}

async fn setting(lent: &mut Lent, name: &'static str) -> Result<Option<String>, Failure> {
    let row = sqlx::query("SHOW GLOBAL VARIABLES WHERE variable_name = ?").bind(name);
    let row = row.fetch_optional(&mut **lent).await?;
    Ok(row.map(|row| row.try_get_unchecked(1)).transpose()?)
}
