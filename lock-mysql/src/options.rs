use std::{
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

use lock_core::{Address, Error, Password, Result, Url};

use crate::table::Table;

const PORT: u16 = 3306;

/// Where the server is and how to speak to it.
///
/// ```
/// # use lock_mysql::MysqlOptions;
/// let options = MysqlOptions::new("db.internal", "app", "locks").password_file("/run/secrets/mysql").tls();
/// ```
///
/// The same as a URL: `mysql://locks@db.internal/app?password_file=/run/secrets/mysql&tls=verify`. `Debug`
/// shows no password.
#[derive(Clone)]
pub struct MysqlOptions {
    pub(crate) server: Address,
    pub(crate) database: String,
    pub(crate) user: String,
    password: Option<Password>,
    pub(crate) tls: Tls,
    pub(crate) table: Table,
    pub(crate) connections: u32,
    pub(crate) connect_timeout: Duration,
}

/// How the connection is protected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Tls {
    Off,
    /// Against those who listen, not against those who pretend to be the server.
    Encrypted,
    /// By the system's roots, and those in a PEM file.
    Verified(Option<PathBuf>),
}

impl MysqlOptions {
    /// The options that a URL may carry, beside core's own.
    pub const URL_KEYS: &'static [&'static str] =
        &["ca", "connect_timeout", "connections", "password_file", "table", "tls"];

    /// The server on this host, at port 3306, without TLS or password; the table `polylock` in this
    /// database.
    #[must_use]
    pub fn new(host: impl Into<String>, database: impl Into<String>, user: impl Into<String>) -> Self {
        Self {
            server: Address::new(host, PORT),
            database: database.into(),
            user: user.into(),
            password: None,
            tls: Tls::Off,
            table: Table::default(),
            connections: 10,
            connect_timeout: Duration::from_secs(2),
        }
    }

    /// Reads `mysql://user[:password]@host[:port]/database[?key=value&…]`; `mariadb:` means the same.
    ///
    /// User, password and database are percent-encoded. Options: `table`, `password_file`, `tls` (`verify`
    /// or `encrypt`), `ca` (a PEM file), `connections`, `connect_timeout`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`](lock_core::ErrorKind::InvalidInput) for what cannot be read. The text
    /// never repeats a user or password.
    pub fn from_url(mut url: Url) -> Result<Self> {
        let authority = url.authority()?;
        let server = Address::parse(&authority.servers, PORT)
            .ok_or_else(|| url.invalid("has host, host:port or [IPv6]:port"))?;
        let (Some(user), false) = (authority.user, authority.path.is_empty()) else {
            return Err(url.invalid("names a user and a database: mysql://user@host/database"));
        };

        let mut options = Self { server, ..Self::new("", authority.path, user) };
        options.password = url.take_password(authority.password)?;
        if let Some(table) = url.take_option("table") {
            options = options.table(table)?;
        }
        match url.take_option("tls").as_deref() {
            None => {}
            Some("verify") => options = options.tls(),
            Some("encrypt") => options = options.tls_without_verification(),
            Some(_) => return Err(url.invalid("has tls=verify or tls=encrypt")),
        }
        if let Some(path) = url.take_option("ca") {
            if options.tls == Tls::Encrypted {
                return Err(url.invalid("with ca has tls=verify"));
            }
            options = options.root_certificates(path);
        }
        if let Some(most) = url.take_option("connections") {
            let most = most.parse().map_err(|_| url.invalid("has connections=10 or another number"))?;
            options = options.connections(most)?;
        }
        if let Some(limit) = url.take_duration("connect_timeout")? {
            options = options.connect_timeout(limit);
        }
        url.deny_unknown_options(Self::URL_KEYS)?;
        Ok(options)
    }

    /// Another port than 3306.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        self.server.port = port;
        self
    }

    /// The password.
    #[must_use]
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.password = Some(Password::Text(password.into()));
        self
    }

    /// A file that holds the password and perhaps a line end. It is read once, on connecting.
    #[must_use]
    pub fn password_file(mut self, path: impl AsRef<Path>) -> Self {
        self.password = Some(Password::in_file(path));
        self
    }

    /// TLS; the server's certificate and name are verified against the system's root certificates.
    #[must_use]
    pub fn tls(mut self) -> Self {
        self.tls = Tls::Verified(None);
        self
    }

    /// TLS, verified against the certificates in a PEM file beside the system's.
    #[must_use]
    pub fn root_certificates(mut self, pem_file: impl AsRef<Path>) -> Self {
        self.tls = Tls::Verified(Some(pem_file.as_ref().into()));
        self
    }

    /// TLS with whoever answers: it keeps out those who listen, but not those who pretend to be the server.
    #[must_use]
    pub fn tls_without_verification(mut self) -> Self {
        self.tls = Tls::Encrypted;
        self
    }

    /// Another table than `polylock`; the queue's is called the same with `_queue` behind it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`](lock_core::ErrorKind::InvalidInput) for more than 58 characters or
    /// others than letters, digits and underscores.
    pub fn table(mut self, table: impl Into<String>) -> Result<Self> {
        self.table = Table::new(table)?;
        Ok(self)
    }

    /// How many requests may be under way at once, each on a connection of its own; 10 by default. While
    /// locks are waited for there is one connection more.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`](lock_core::ErrorKind::InvalidInput) for less than 2 or more than 10,000.
    pub fn connections(mut self, most: u32) -> Result<Self> {
        if !(2..=10_000).contains(&most) {
            return Err(Error::invalid_input("connections is between 2 and 10000"));
        }
        self.connections = most;
        Ok(self)
    }

    /// How long opening one connection may take; 2 s by default.
    #[must_use]
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.connect_timeout = limit;
        self
    }

    /// The statements that make the tables, for those who let a migration do it rather than the first use.
    ///
    /// ```
    /// # use lock_mysql::MysqlOptions;
    /// println!("{}", MysqlOptions::new("db.internal", "app", "locks").migration());
    /// ```
    #[must_use]
    pub fn migration(&self) -> String {
        self.table.migration()
    }

    pub(crate) fn read_password(&self) -> Result<Option<String>> {
        self.password.as_ref().map(Password::read).transpose()
    }
}

impl fmt::Debug for MysqlOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { database, user, password, tls, table, connections, connect_timeout, .. } = self;
        f.debug_struct("MysqlOptions")
            .field("server", &self.server.to_string())
            .field("database", database)
            .field("user", user)
            .field("password", password)
            .field("tls", tls)
            .field("table", table)
            .field("connections", connections)
            .field("connect_timeout", connect_timeout)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Result<MysqlOptions> {
        MysqlOptions::from_url(Url::parse(url)?)
    }

    #[test]
    fn a_url_says_all_that_the_builder_can() {
        let options = read("mariadb://me@127.0.0.1/app").unwrap();
        assert_eq!((options.server.to_string().as_str(), options.tls.clone()), ("127.0.0.1:3306", Tls::Off));
        assert_eq!((options.user.as_str(), options.database.as_str()), ("me", "app"));
        assert_eq!(options.table, Table::default());
        let options = read(
            "mysql://me:a%40b%3Ac@[::1]:7000/my%2Fapp?table=locks&tls=verify&ca=/ca.pem&connections=3\
             &connect_timeout=5s",
        )
        .unwrap();
        assert_eq!(
            (options.server.to_string().as_str(), options.database.as_str()),
            ("[::1]:7000", "my/app")
        );
        assert_eq!(options.read_password().unwrap().as_deref(), Some("a@b:c"));
        assert_eq!(options.tls, Tls::Verified(Some("/ca.pem".into())));
        assert_eq!(options.table, Table::new("locks").unwrap());
        assert_eq!((options.connections, options.connect_timeout), (3, Duration::from_secs(5)));
        assert_eq!(read("mysql://me@h/a?tls=encrypt").unwrap().tls, Tls::Encrypted);
    }

    #[test]
    fn what_cannot_be_read_is_refused_without_repeating_secrets() {
        for bad in [
            "mysql:h",
            "mysql://",
            "mysql://h/a",
            "mysql://me:s3cr3t@h",
            "mysql://me:s3cr3t@h/",
            "mysql://:s3cr3t@h/a",
            "mysql://me:s3cr3t@/a",
            "mysql://me:s3cr3t@h:port/a",
            "mysql://me:s3cr3t@[::1/a",
            "mysql://me:%ff-s3cr3t@h/a",
            "mysql://me:s3cr3t@h/a?password_file=/f",
            "mysql://me:s3cr3t@h/a?table=a.b",
            "mysql://me:s3cr3t@h/a?tls=s3cr3t",
            "mysql://me:s3cr3t@h/a?tls=encrypt&ca=/ca.pem",
            "mysql://me:s3cr3t@h/a?connections=1",
            "mysql://me:s3cr3t@h/a?connect_timeout=s3cr3t",
            "mysql://me:s3cr3t@h/a?charset=latin1",
        ] {
            let error = read(bad).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("s3cr3t"), "{bad}: {error:?}");
        }
    }

    #[test]
    fn debug_shows_no_password() {
        let shown = format!("{:?}", MysqlOptions::new("h", "a", "me").password("s3cr3t"));
        assert!(!shown.contains("s3cr3t") && shown.contains("\"me\""), "{shown}");
    }
}
