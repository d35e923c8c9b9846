use std::{
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

use lock_core::{Address, Password, Result, Url};

use crate::keys::Prefix;

const PORT: u16 = 6379;

/// Where the server is and how to speak to it.
///
/// ```
/// # use lock_redis::RedisOptions;
/// # fn main() -> lock_core::Result<()> {
/// let options = RedisOptions::new("redis.internal").user("locks").password_file("/run/secrets/redis").tls();
/// # Ok(()) }
/// ```
///
/// The same as a URL: `rediss://locks@redis.internal?password_file=/run/secrets/redis`. `Debug` shows no
/// password.
#[derive(Clone)]
pub struct RedisOptions {
    pub(crate) server: Address,
    pub(crate) tls: bool,
    pub(crate) root_certificates: Option<PathBuf>,
    pub(crate) user: Option<String>,
    password: Option<Password>,
    pub(crate) database: i64,
    pub(crate) prefix: Prefix,
    pub(crate) protocol: Protocol,
    pub(crate) connect_timeout: Duration,
}

/// The version of Redis' protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Protocol {
    /// RESP3, or RESP2 where the server does not speak that.
    #[default]
    Newest,
    /// RESP2: a server that behaves oddly in RESP3. Waiters poll.
    Resp2,
    /// RESP3 or an error.
    Resp3,
}

impl RedisOptions {
    /// The options that a URL may carry, beside core's own.
    pub const URL_KEYS: &'static [&'static str] =
        &["ca", "connect_timeout", "password_file", "prefix", "protocol"];

    /// The server on this host, at port 6379, without TLS or password.
    #[must_use]
    pub fn new(host: impl Into<String>) -> Self {
        Self {
            server: Address::new(host, PORT),
            tls: false,
            root_certificates: None,
            user: None,
            password: None,
            database: 0,
            prefix: Prefix::default(),
            protocol: Protocol::default(),
            connect_timeout: Duration::from_secs(1),
        }
    }

    /// Reads `redis://[user[:password]@]host[:port][/database][?key=value&…]`; `rediss:` for TLS.
    ///
    /// User and password are percent-encoded. Options: `prefix`, `password_file`, `ca` (a PEM file),
    /// `protocol` (`resp2` or `resp3`), `connect_timeout`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`](lock_core::ErrorKind::InvalidInput) for what cannot be read. The text
    /// never repeats a user or password.
    pub fn from_url(mut url: Url) -> Result<Self> {
        let authority = url.authority()?;
        let server = Address::parse(&authority.servers, PORT)
            .ok_or_else(|| url.invalid("has host, host:port or [IPv6]:port"))?;

        let mut options = Self { server, ..Self::new("") };
        options.tls = url.scheme() == "rediss";
        if !authority.path.is_empty() {
            let number = authority.path.parse::<u16>();
            options = options.database(number.map_err(|_| url.invalid("ends with the database's number"))?);
        }
        options.user = authority.user;
        options.password = url.take_password(authority.password)?;
        if let Some(prefix) = url.take_option("prefix") {
            options = options.prefix(prefix)?;
        }
        if let Some(path) = url.take_option("ca") {
            if !options.tls {
                return Err(url.invalid("with ca starts with rediss://"));
            }
            options = options.root_certificates(path);
        }
        match url.take_option("protocol").as_deref() {
            None => {}
            Some("resp2") => options = options.protocol(Protocol::Resp2),
            Some("resp3") => options = options.protocol(Protocol::Resp3),
            Some(_) => return Err(url.invalid("has protocol=resp2 or protocol=resp3")),
        }
        if let Some(limit) = url.take_duration("connect_timeout")? {
            options = options.connect_timeout(limit);
        }
        url.deny_unknown_options(Self::URL_KEYS)?;
        Ok(options)
    }

    /// Another port than 6379.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        self.server.port = port;
        self
    }

    /// TLS, verified against the system's root certificates.
    #[must_use]
    pub fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// TLS, verified against the certificates in a PEM file and no others.
    #[must_use]
    pub fn root_certificates(mut self, pem_file: impl AsRef<Path>) -> Self {
        self.tls = true;
        self.root_certificates = Some(pem_file.as_ref().into());
        self
    }

    /// An ACL user; without one, a password is that of the user `default`.
    #[must_use]
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.user = Some(user.into());
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

    /// Another database than 0.
    #[must_use]
    pub fn database(mut self, number: u16) -> Self {
        self.database = number.into();
        self
    }

    /// What goes in front of every key and channel, instead of `polylock:`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`](lock_core::ErrorKind::InvalidInput) for more than 255 bytes, braces or
    /// control characters.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Result<Self> {
        self.prefix = Prefix::new(prefix)?;
        Ok(self)
    }

    /// The version of the protocol.
    #[must_use]
    pub fn protocol(mut self, protocol: Protocol) -> Self {
        self.protocol = protocol;
        self
    }

    /// How long opening one connection may take; 1 s by default.
    #[must_use]
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.connect_timeout = limit;
        self
    }

    pub(crate) fn read_password(&self) -> Result<Option<String>> {
        self.password.as_ref().map(Password::read).transpose()
    }
}

impl fmt::Debug for RedisOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            tls, root_certificates, user, password, database, prefix, protocol, connect_timeout, ..
        } = self;
        f.debug_struct("RedisOptions")
            .field("server", &self.server.to_string())
            .field("tls", tls)
            .field("root_certificates", root_certificates)
            .field("user", user)
            .field("password", password)
            .field("database", database)
            .field("prefix", prefix)
            .field("protocol", protocol)
            .field("connect_timeout", connect_timeout)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Result<RedisOptions> {
        RedisOptions::from_url(Url::parse(url)?)
    }

    #[test]
    fn a_url_says_all_that_the_builder_can() {
        let options = read("redis://127.0.0.1").unwrap();
        assert_eq!((options.server.to_string().as_str(), options.tls), ("127.0.0.1:6379", false));
        let options = read(
            "rediss://me:a%40b%3Ac@[::1]:7000/3?prefix=app:&ca=/ca.pem&protocol=resp2&connect_timeout=2s",
        )
        .unwrap();
        assert_eq!((options.server.to_string().as_str(), options.tls), ("[::1]:7000", true));
        assert_eq!((options.user.as_deref(), options.database), (Some("me"), 3));
        assert_eq!(options.read_password().unwrap().as_deref(), Some("a@b:c"));
        assert_eq!(options.prefix, Prefix::new("app:").unwrap());
        assert_eq!(options.root_certificates.as_deref(), Some(Path::new("/ca.pem")));
        assert_eq!(options.protocol, Protocol::Resp2);
        assert_eq!(options.connect_timeout, Duration::from_secs(2));
        let options = read("redis://:pass@h").unwrap();
        assert_eq!((options.user, options.server.host.as_str()), (None, "h"));
    }

    #[test]
    fn what_cannot_be_read_is_refused_without_repeating_secrets() {
        for bad in [
            "redis:h",
            "redis://",
            "redis://:s3cr3t@",
            "redis://me:s3cr3t@h:port",
            "redis://me:s3cr3t@h/s3cr3t",
            "redis://me:s3cr3t@h:70000",
            "redis://me:s3cr3t@[::1",
            "redis://me:s3cr3t@[::1]x",
            "redis://me:%ff-s3cr3t@h",
            "redis://me:s3cr3t@h?password_file=/f",
            "redis://me:s3cr3t@h?prefix={",
            "redis://me:s3cr3t@h?ca=/ca.pem",
            "redis://me:s3cr3t@h?protocol=resp4",
            "redis://me:s3cr3t@h?connect_timeout=s3cr3t",
            "redis://me:s3cr3t@h?sentinel=1",
        ] {
            let error = read(bad).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("s3cr3t"), "{bad}: {error:?}");
        }
    }

    #[test]
    fn debug_shows_no_password() {
        let shown = format!("{:?}", RedisOptions::new("h").user("me").password("s3cr3t"));
        assert!(!shown.contains("s3cr3t") && shown.contains("\"me\""), "{shown}");
    }
}
