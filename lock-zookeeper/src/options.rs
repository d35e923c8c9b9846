use std::{fmt, path::Path, time::Duration};

use lock_core::{Address, Error, Password, Result, Url};

use crate::place::Root;

/// The tick of most servers: `tickTime` in ZooKeeper's own example.
pub(crate) const TICK: Duration = Duration::from_secs(2);
const PORT: u16 = 2181;

/// Where the servers are and how to speak to them.
///
/// ```
/// # use lock_zookeeper::ZookeeperOptions;
/// # fn main() -> lock_core::Result<()> {
/// let options = ZookeeperOptions::new(["zk1", "zk2", "zk3"])
///     .root("/locks/shop")?
///     .user("shop")
///     .password_file("/run/secrets/zookeeper");
/// # Ok(()) }
/// ```
///
/// The same as a URL: `zookeeper://shop@zk1,zk2,zk3/locks/shop?password_file=/run/secrets/zookeeper`. `Debug`
/// shows no password.
#[derive(Clone)]
pub struct ZookeeperOptions {
    /// As the driver reads them: `host:port,host:port`.
    pub(crate) servers: String,
    pub(crate) root: Root,
    user: Option<String>,
    password: Option<Password>,
    pub(crate) tick: Duration,
    pub(crate) connect_timeout: Duration,
}

impl ZookeeperOptions {
    /// The options that a URL may carry, beside core's own.
    pub const URL_KEYS: &'static [&'static str] = &["connect_timeout", "password_file", "tick"];

    /// These servers of one ensemble, each `host`, `host:port` or `[IPv6]:port`; the port is 2181 by default.
    #[must_use]
    pub fn new(servers: impl IntoIterator<Item: AsRef<str>>) -> Self {
        let servers: Vec<_> = servers.into_iter().map(|server| with_port(server.as_ref())).collect();
        Self {
            servers: servers.join(","),
            root: Root::default(),
            user: None,
            password: None,
            tick: TICK,
            connect_timeout: Duration::from_secs(1),
        }
    }

    /// Reads `zookeeper://[user[:password]@]host[:port][,host[:port]…][/path][?key=value&…]`.
    ///
    /// User, password and path are percent-encoded. Options: `password_file`, `tick`, `connect_timeout`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`](lock_core::ErrorKind::InvalidInput) for what cannot be read. The text
    /// never repeats a user or password.
    pub fn from_url(mut url: Url) -> Result<Self> {
        let authority = url.authority()?;
        if authority.servers.split(',').any(|server| Address::parse(server, PORT).is_none()) {
            return Err(url.invalid("has host, host:port or [IPv6]:port, and commas in between"));
        }
        let mut options = Self::new(authority.servers.split(','));
        if !authority.path.is_empty() {
            options = options.root(&format!("/{}", authority.path))?;
        }
        options.user = authority.user;
        options.password = url.take_password(authority.password)?;
        if let Some(tick) = url.take_duration("tick")? {
            options = options.tick(tick);
        }
        if let Some(limit) = url.take_duration("connect_timeout")? {
            options = options.connect_timeout(limit);
        }
        url.deny_unknown_options(Self::URL_KEYS)?;
        if options.user.is_some() != options.password.is_some() {
            return Err(url.invalid("has a user and a password, or neither"));
        }
        Ok(options)
    }

    /// The node below which all locks live, made when it is missing; by default the server's own root.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`](lock_core::ErrorKind::InvalidInput) for what is no path of nodes.
    pub fn root(mut self, path: &str) -> Result<Self> {
        self.root = Root::new(path)?;
        Ok(self)
    }

    /// The user of the scheme `digest`. All nodes are then made for this user alone.
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

    /// The servers' `tickTime`, which they do not tell; 2 s by default. No session is asked for that is
    /// shorter than six ticks.
    #[must_use]
    pub fn tick(mut self, tick: Duration) -> Self {
        self.tick = tick.min(Duration::from_hours(1));
        self
    }

    /// How long opening one session may take; 1 s by default.
    #[must_use]
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.connect_timeout = limit;
        self
    }

    /// `user:password`, if there are any.
    pub(crate) fn read_credentials(&self) -> Result<Option<String>> {
        let password = self.password.as_ref().map(Password::read).transpose()?;
        match (&self.user, password) {
            (Some(user), Some(password)) if !user.contains(':') => Ok(Some([user, ":", &password].concat())),
            (None, None) => Ok(None),
            _ => {
                Err(Error::invalid_input("zookeeper takes a user without colons and a password, or neither"))
            }
        }
    }
}

impl fmt::Debug for ZookeeperOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZookeeperOptions")
            .field("servers", &self.servers)
            .field("root", &self.root)
            .field("user", &self.user)
            .field("password", &self.password)
            .field("tick", &self.tick)
            .field("connect_timeout", &self.connect_timeout)
            .finish()
    }
}

/// What is no address stays as it is: the driver says so.
fn with_port(server: &str) -> String {
    Address::parse(server, PORT).map_or_else(|| server.to_owned(), |address| address.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Result<ZookeeperOptions> {
        ZookeeperOptions::from_url(Url::parse(url)?)
    }

    #[test]
    fn a_url_says_all_that_the_builder_can() {
        let options = read("zookeeper://127.0.0.1").unwrap();
        assert_eq!((options.servers.as_str(), options.root.path()), ("127.0.0.1:2181", None));
        let url = "zookeeper://me:a%40b%3Ac@zk1,zk2:7000,[::1]:1/locks/a%20b?tick=50ms&connect_timeout=2s";
        let options = read(url).unwrap();
        assert_eq!(options.servers, "zk1:2181,zk2:7000,[::1]:1");
        assert_eq!(options.root.path(), Some("/locks/a b"));
        assert_eq!(options.read_credentials().unwrap().as_deref(), Some("me:a@b:c"));
        assert_eq!((options.tick.as_millis(), options.connect_timeout.as_secs()), (50, 2));
    }

    #[test]
    fn what_cannot_be_read_is_refused_without_repeating_secrets() {
        for bad in [
            "zookeeper:h",
            "zookeeper://",
            "zookeeper://:s3cr3t@",
            "zookeeper://me@h",
            "zookeeper://me:s3cr3t@h,,h",
            "zookeeper://me:s3cr3t@h:port",
            "zookeeper://me:s3cr3t@h//a",
            "zookeeper://me:s3cr3t@h/zookeeper",
            "zookeeper://me:s3cr3t@h/a%2F..",
            "zookeeper://me:s3cr3t@h:70000",
            "zookeeper://me:s3cr3t@[::1",
            "zookeeper://me:%ff-s3cr3t@h",
            "zookeeper://me:s3cr3t@h?password_file=/f",
            "zookeeper://me:s3cr3t@h?tick=s3cr3t",
            "zookeeper://me:s3cr3t@h?connect_timeout=s3cr3t",
            "zookeeper://me:s3cr3t@h?chroot=1",
        ] {
            let error = read(bad).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("s3cr3t"), "{bad}: {error:?}");
        }
    }

    #[test]
    fn debug_shows_no_password() {
        let shown = format!("{:?}", ZookeeperOptions::new(["h"]).user("me").password("s3cr3t"));
        assert!(!shown.contains("s3cr3t") && shown.contains("\"me\""), "{shown}");
    }
}
