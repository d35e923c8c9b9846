//! MySQL and MariaDB.

use async_trait::async_trait;
use polylock::{Url, mysql::MysqlOptions};
use sqlx::{
    AssertSqlSafe, ConnectOptions, Connection, Executor, MySqlConnection, Row,
    mysql::{MySqlConnectOptions, MySqlRow, MySqlSslMode},
};

use super::{Commands, Server};
use crate::{
    failure::{Failure, Result},
    place::Place,
    record,
};

/// As our backend sets its sessions up.
const SESSION: &str = "SET autocommit = 1, innodb_lock_wait_timeout = 1, sql_mode = 'STRICT_ALL_TABLES'; \
                       SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED";

pub(super) struct Mysql {
    connection: MySqlConnection,
    place: Place,
}

/// A connection as our backend makes it.
pub(crate) async fn dial(place: &Place) -> Result<MySqlConnection> {
    if place.parsed()?.option("tls").is_some() {
        return Err(Failure::new("the bare driver is measured without TLS only"));
    }
    let (addresses, database) = place.addresses(3306)?;
    let address = addresses.first().ok_or_else(|| Failure::new("the URL names no server"))?;
    let (user, password) = place.credentials()?;
    let mut options = MySqlConnectOptions::new()
        .host(&address.host)
        .port(address.port)
        .username(&user.unwrap_or_default())
        .database(&database)
        .pipes_as_concat(false)
        .no_engine_substitution(false)
        .timezone(None)
        .set_names(false)
        .ssl_mode(MySqlSslMode::Disabled)
        .disable_statement_logging();
    if let Some(password) = password {
        options = options.password(&password);
    }
    let mut connection = MySqlConnection::connect_with(&options).await?;
    connection.execute(sqlx::raw_sql(SESSION)).await?;
    Ok(connection)
}

/// Makes this run's tables.
pub(crate) async fn migrate(place: &Place) -> Result {
    let mut url = Url::parse(&place.ours())?;
    url.take_core_options(polylock::Options::default())?;
    let migration = MysqlOptions::from_url(url)?.migration();
    let mut connection = dial(place).await?;
    connection.execute(sqlx::raw_sql(AssertSqlSafe(migration))).await?;
    Ok(connection.close().await?)
}

impl Mysql {
    pub(super) async fn connect(place: &Place) -> Result<Self> {
        Ok(Self { connection: dial(place).await?, place: place.clone() })
    }

    async fn pairs(&mut self, question: &'static str) -> Result<Vec<(String, String)>> {
        let rows: Vec<MySqlRow> = self.connection.fetch_all(sqlx::raw_sql(question)).await?;
        let text = |row: &MySqlRow, i: usize| row.try_get_unchecked::<String, _>(i);
        rows.iter().map(|row| Ok((text(row, 0)?, text(row, 1)?))).collect()
    }
}

/// Of the size of a Galera cluster, which a server without Galera does not tell, or as 0.
fn topology(told: &[(String, String)]) -> String {
    match told.first().and_then(|(_, size)| size.parse::<u32>().ok()) {
        None | Some(0 | 1) => "one server".into(),
        Some(nodes) => format!("{nodes} nodes (Galera)"),
    }
}

#[async_trait]
impl Server for Mysql {
    async fn describe(&mut self) -> Result<record::Server> {
        let settings = self
            .pairs(
                "SHOW GLOBAL VARIABLES WHERE Variable_name IN \
                 ('version', 'innodb_flush_log_at_trx_commit', 'log_bin', 'sync_binlog')",
            )
            .await?;
        let setting = |name: &str| {
            let found = settings.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
            found.map_or("not told", |(_, value)| value.as_str())
        };
        let version = setting("version");
        let mut durability =
            format!("innodb_flush_log_at_trx_commit={}", setting("innodb_flush_log_at_trx_commit"));
        if setting("log_bin") == "ON" {
            durability += &format!(", sync_binlog={}", setting("sync_binlog"));
        }
        Ok(record::Server {
            backend: if version.contains("MariaDB") { "mariadb".into() } else { "mysql".into() },
            url: self.place.shown(),
            version: version.into(),
            durability,
            topology: topology(&self.pairs("SHOW GLOBAL STATUS LIKE 'wsrep\\_cluster\\_size'").await?),
        })
    }

    /// The total is of statements by clients; by kind there is more, since what is prepared counts twice.
    async fn commands(&mut self) -> Option<Commands> {
        let told = self
            .pairs("SHOW GLOBAL STATUS WHERE Variable_name = 'Questions' OR Variable_name LIKE 'Com\\_%'")
            .await
            .ok()?;
        let mut commands = Commands::default();
        for (name, count) in told {
            let count = count.parse::<f64>().unwrap_or(0.0);
            match name.strip_prefix("Com_") {
                None => commands.total = count,
                // Those are our own questions.
                Some("show_status") => {}
                Some(kind) if count > 0.0 => drop(commands.by_kind.insert(kind.into(), count)),
                Some(_) => {}
            }
        }
        Some(commands)
    }

    async fn tidy(&mut self) -> Result {
        let table = self.place.table();
        let text = format!("DROP TABLE IF EXISTS `{table}`, `{table}_queue`");
        self.connection.execute(sqlx::raw_sql(AssertSqlSafe(text))).await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nodes_of_a_galera_cluster_are_counted() {
        let told = |size: &str| [("wsrep_cluster_size".to_owned(), size.to_owned())];
        assert_eq!(topology(&told("3")), "3 nodes (Galera)");
        for alone in [&[][..], &told("0"), &told("1")] {
            assert_eq!(topology(alone), "one server");
        }
    }
}
