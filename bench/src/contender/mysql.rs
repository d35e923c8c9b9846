//! The bare driver on MySQL and MariaDB: our statements, and `GET_LOCK`.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use polylock::Owner;
use sqlx::{AssertSqlSafe, MySqlConnection, Row};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{Client, Contender, LEASE, Lock, no_wait, rust};
use crate::{
    failure::{Failure, Result},
    place::Place,
    record::{self, Kind, Workload},
    server::mysql::{dial, migrate},
};

const VERSION: &str = "sqlx 0.9";
/// As many as our backend has by default.
const CONNECTIONS: usize = 10;
/// `GET_LOCK` binds a lock to its connection, so there is one for each that is held or waited for.
const UNBOUNDED: usize = 140;

pub(super) fn add(all: &mut Vec<Box<dyn Contender>>) {
    all.extend([Box::new(Raw) as Box<dyn Contender>, Box::new(GetLock)]);
}

/// Connections, each for one step; the one that was used last comes first.
struct Pool {
    place: Place,
    idle: Mutex<Vec<MySqlConnection>>,
    places: Arc<Semaphore>,
}

struct Lent {
    connection: MySqlConnection,
    _place: OwnedSemaphorePermit,
}

impl Pool {
    fn new(place: &Place, most: usize) -> Arc<Self> {
        let places = Arc::new(Semaphore::new(most));
        Arc::new(Self { place: place.clone(), idle: Mutex::default(), places })
    }

    async fn lend(&self) -> Result<Lent> {
        let place = self.places.clone().acquire_owned().await?;
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let connection = match idle {
            Some(connection) => connection,
            None => dial(&self.place).await?,
        };
        Ok(Lent { connection, _place: place })
    }

    fn give_back(&self, lent: Lent) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(lent.connection);
    }
}

/// The statements that a lock costs that nobody waits for, prepared, in a pool like ours.
struct Raw;

#[async_trait]
impl Contender for Raw {
    fn who(&self) -> record::Contender {
        rust("raw", Kind::Raw, VERSION)
    }

    fn lacks(&self, workload: Workload) -> Option<&str> {
        no_wait(workload)
    }

    async fn open(&self, place: &Place) -> Result<Arc<dyn Client>> {
        migrate(place).await?;
        let table = place.table();
        let of_table = |text: &str| text.trim_end().replace("`polylock`", &format!("`{table}`")).into();
        let acquire = of_table(include_str!("../../../lock-mysql/src/statements/acquire.sql"));
        let release = of_table(include_str!("../../../lock-mysql/src/statements/release.sql"));
        let insert = format!("INSERT IGNORE INTO `{table}` (name) VALUES (?)").into();
        Ok(Arc::new(RawClient { pool: Pool::new(place, CONNECTIONS), acquire, release, insert }))
    }
}

struct RawClient {
    pool: Arc<Pool>,
    acquire: Arc<str>,
    release: Arc<str>,
    insert: Arc<str>,
}

#[async_trait]
impl Client for RawClient {
    fn lock(&self, name: &str) -> Result<Box<dyn Lock>> {
        Ok(Box::new(RawLock {
            pool: self.pool.clone(),
            acquire: self.acquire.clone(),
            release: self.release.clone(),
            insert: self.insert.clone(),
            name: format!("{name}-raw"),
            owner: [0; 16],
        }))
    }
}

struct RawLock {
    pool: Arc<Pool>,
    acquire: Arc<str>,
    release: Arc<str>,
    insert: Arc<str>,
    name: String,
    owner: [u8; 16],
}

impl RawLock {
    async fn take(&self, connection: &mut MySqlConnection) -> Result<bool> {
        let owner = self.owner.as_slice();
        let taken = sqlx::query(AssertSqlSafe(self.acquire.clone()))
            .bind(owner)
            .bind(owner)
            .bind("host:1234")
            .bind(LEASE.as_micros() as u64)
            .bind(self.name.as_bytes())
            .bind(owner)
            .execute(connection)
            .await?;
        Ok(taken.rows_affected() == 1)
    }
}

#[async_trait]
impl Lock for RawLock {
    async fn acquire(&mut self) -> Result {
        self.owner = *Owner::random()?.as_bytes();
        let mut lent = self.pool.lend().await?;
        if !self.take(&mut lent.connection).await? {
            // The first time there is no row.
            let insert = sqlx::query(AssertSqlSafe(self.insert.clone())).bind(self.name.as_bytes());
            insert.execute(&mut lent.connection).await?;
            if !self.take(&mut lent.connection).await? {
                return Err(Failure::new("the bare lock is taken"));
            }
        }
        self.pool.give_back(lent);
        Ok(())
    }

    async fn release(&mut self) -> Result {
        let mut lent = self.pool.lend().await?;
        let freed = sqlx::query(AssertSqlSafe(self.release.clone()))
            .bind(self.name.as_bytes())
            .bind(self.owner.as_slice())
            .execute(&mut lent.connection)
            .await?;
        self.pool.give_back(lent);
        if freed.rows_affected() == 1 { Ok(()) } else { Err(Failure::new("the bare lock was not held")) }
    }
}

/// The server's own locks: no lease, no token, and gone with their connection.
struct GetLock;

#[async_trait]
impl Contender for GetLock {
    fn who(&self) -> record::Contender {
        rust("raw, unfenced", Kind::Unfenced, VERSION)
    }

    fn lacks(&self, workload: Workload) -> Option<&str> {
        matches!(workload, Workload::Holding | Workload::HoldingMany | Workload::Crash)
            .then_some("GET_LOCK has no lease")
    }

    async fn open(&self, place: &Place) -> Result<Arc<dyn Client>> {
        Ok(Arc::new(GetLockClient(Pool::new(place, UNBOUNDED))))
    }
}

struct GetLockClient(Arc<Pool>);

#[async_trait]
impl Client for GetLockClient {
    fn lock(&self, name: &str) -> Result<Box<dyn Lock>> {
        Ok(Box::new(GetLockLock { pool: self.0.clone(), name: name.into(), lent: None }))
    }
}

struct GetLockLock {
    pool: Arc<Pool>,
    name: String,
    lent: Option<Lent>,
}

#[async_trait]
impl Lock for GetLockLock {
    async fn acquire(&mut self) -> Result {
        let mut lent = self.pool.lend().await?;
        let get = sqlx::query("SELECT GET_LOCK(?, 3600)").bind(&self.name);
        one(get.fetch_one(&mut lent.connection).await?)?;
        self.lent = Some(lent);
        Ok(())
    }

    async fn release(&mut self) -> Result {
        let mut lent = self.lent.take().ok_or_else(|| Failure::new("not held"))?;
        let release = sqlx::query("SELECT RELEASE_LOCK(?)").bind(&self.name);
        one(release.fetch_one(&mut lent.connection).await?)?;
        self.pool.give_back(lent);
        Ok(())
    }
}

fn one(row: sqlx::mysql::MySqlRow) -> Result {
    match row.try_get_unchecked::<Option<i64>, _>(0)? {
        Some(1) => Ok(()),
        other => Err(Failure::new(format!("the server's own lock gave {other:?}"))),
    }
}
