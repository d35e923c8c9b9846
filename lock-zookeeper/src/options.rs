use std::{
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

use lock_core::{Error, Result, Url};
use percent_encoding::percent_decode_str;

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

#[derive(Clone)]
enum Password {
    Text(String),
    File(PathBuf),
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
        let invalid = |text: &str| Error::invalid_input(format!("a zookeeper URL {text}"));
        let rest = url.rest().strip_prefix("//").ok_or_else(|| invalid("starts with zookeeper://"))?;
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (who, servers) = match authority.rsplit_once('@') {
            Some((who, servers)) => (Some(who), servers),
            None => (None, authority),
        };
        if !servers.split(',').all(is_server) {
            return Err(invalid("has host, host:port or [IPv6]:port, and commas in between"));
        }
        let mut options = Self::new(servers.split(',')).root(&decoded(path)?)?;
        if let Some(who) = who {
            let (user, password) = who.split_once(':').map_or((who, None), |(user, pass)| (user, Some(pass)));
            options = options.user(decoded(user)?);
            if let Some(password) = password {
                options = options.password(decoded(password)?);
            }
        }
        if let Some(path) = url.take_option("password_file") {
            if options.password.is_some() {
                return Err(invalid("has a password or a password_file, not both"));
            }
            options = options.password_file(path);
        }
        let mut duration = |key: &str| {
            let read = url.take_option(key).map(|text| humantime::parse_duration(&text)).transpose();
            read.map_err(|_| invalid(&format!("has {key}=2s or another duration")))
        };
        if let Some(tick) = duration("tick")? {
            options = options.tick(tick);
        }
        if let Some(limit) = duration("connect_timeout")? {
            options = options.connect_timeout(limit);
        }
        url.deny_unknown_options(Self::URL_KEYS)?;
        if options.user.is_some() != options.password.is_some() {
            return Err(invalid("has a user and a password, or neither"));
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
        self.password = Some(Password::File(path.as_ref().into()));
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
        let password = match &self.password {
            None => None,
            Some(Password::Text(password)) => Some(password.clone()),
            Some(Password::File(path)) => {
                let text = std::fs::read_to_string(path).map_err(|e| {
                    Error::invalid_input(format!("the password file {path:?} cannot be read")).with_source(e)
                })?;
                Some(text.trim_end_matches(['\r', '\n']).to_owned())
            }
        };
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
            .field("password", &self.password.as_ref().map(|_| "…"))
            .field("tick", &self.tick)
            .field("connect_timeout", &self.connect_timeout)
            .finish()
    }
}

fn with_port(server: &str) -> String {
    if split_port(server).is_some_and(|(_, port)| port.is_none()) {
        return format!("{server}:{PORT}");
    }
    server.to_owned()
}

fn is_server(server: &str) -> bool {
    split_port(server).is_some()
}

/// Splits `host`, `host:port`, `[IPv6]` or `[IPv6]:port`.
fn split_port(place: &str) -> Option<(&str, Option<u16>)> {
    let (host, port) = match place.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            (host, if port.is_empty() { None } else { Some(port.strip_prefix(':')?) })
        }
        None => place.split_once(':').map_or((place, None), |(host, port)| (host, Some(port))),
    };
    let port = port.map(str::parse::<u16>).transpose().ok()?;
    (!host.is_empty()).then_some((host, port))
}

fn decoded(text: &str) -> Result<String> {
    let decoded = percent_decode_str(text).decode_utf8();
    let decoded =
        decoded.map_err(|_| Error::invalid_input("the user, password or path in the URL is not UTF-8"))?;
    Ok(decoded.into_owned())
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
    fn a_password_file_ends_before_its_line_end() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "s3cr3t \r\n").unwrap();
        let url = format!("zookeeper://me@h?password_file={}", file.path().display());
        assert_eq!(read(&url).unwrap().read_credentials().unwrap().as_deref(), Some("me:s3cr3t "));
        assert!(read("zookeeper://me@h?password_file=/nowhere").unwrap().read_credentials().is_err());
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
