use std::time::Duration;

use lock_core::{Error, ErrorKind, Result};
use sqlx::{
    ConnectOptions, Connection, Executor, MySqlConnection,
    mysql::{MySqlConnectOptions, MySqlSslMode},
};

use crate::{
    MysqlOptions,
    error::{from_sqlx, while_dialing},
    options::Tls,
};

/// What a session needs, whatever the server's defaults and its `init_connect` say.
///
/// `READ COMMITTED` knows no locks on gaps between rows, in which claims on different names would meet. A
/// row that a stranger has locked is an error after a second, the shortest that MySQL can wait.
const SESSION: &str = "SET autocommit = 1, innodb_lock_wait_timeout = 1, sql_mode = 'STRICT_ALL_TABLES'; \
                       SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED";

/// Opens connections.
#[derive(Debug)]
pub(crate) struct Dialer {
    options: MySqlConnectOptions,
    password: Option<String>,
    address: String,
    limit: Duration,
}

impl Dialer {
    /// # Errors
    ///
    /// `InvalidInput` for a password or certificate file that cannot be read.
    pub(crate) fn new(options: &MysqlOptions) -> Result<Self> {
        let password = options.read_password()?;
        let mut dialed = MySqlConnectOptions::new()
            .host(&options.server.host)
            .port(options.server.port)
            .username(&options.user)
            .database(&options.database)
            // The session is set up by us, in one request.
            .pipes_as_concat(false)
            .no_engine_substitution(false)
            .timezone(None)
            .set_names(false)
            .disable_statement_logging();
        if let Some(password) = &password {
            dialed = dialed.password(password);
        }
        dialed = match &options.tls {
            Tls::Off => dialed.ssl_mode(MySqlSslMode::Disabled),
            Tls::Encrypted => dialed.ssl_mode(MySqlSslMode::Required),
            Tls::Verified(None) => dialed.ssl_mode(MySqlSslMode::VerifyIdentity),
            Tls::Verified(Some(file)) => {
                let pem = std::fs::read(file).map_err(|e| {
                    Error::invalid_input(format!("the certificates in {file:?} cannot be read"))
                        .with_source(e)
                })?;
                dialed.ssl_mode(MySqlSslMode::VerifyIdentity).ssl_ca_from_pem(pem)
            }
        };
        Ok(Self {
            options: dialed,
            password,
            address: options.server.to_string(),
            limit: options.connect_timeout,
        })
    }

    /// How long opening a connection may take.
    pub(crate) fn limit(&self) -> Duration {
        self.limit
    }

    /// Opens a connection and sets it up.
    ///
    /// # Errors
    ///
    /// `Denied` for a wrong user, password or certificate, `InvalidInput` for a database that is not
    /// there, `Unavailable` otherwise.
    pub(crate) async fn dial(&self) -> Result<MySqlConnection> {
        let dialing = async {
            let mut connection = MySqlConnection::connect_with(&self.options).await?;
            connection.execute(sqlx::raw_sql(SESSION)).await?;
            Ok(connection)
        };
        match tokio::time::timeout(self.limit, dialing).await {
            Ok(Ok(connection)) => Ok(connection),
            Ok(Err(error)) => Err(while_dialing(&self.address, from_sqlx(error), self.password.as_deref())),
            Err(_) => {
                let (address, limit) = (&self.address, self.limit);
                let text = format!("mysql at {address} did not let us in within {limit:?}");
                Err(Error::new(ErrorKind::Unavailable, text))
            }
        }
    }
}
