//! What the URLs of servers have in common.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
    time::Duration,
};

use percent_encoding::percent_decode_str;

use crate::{Error, Result, Url};

/// What a server's URL says before its options: `//[user[:password]@]servers[/path]`, decoded but for the
/// servers. What is empty is not there.
///
/// `Debug` shows no user and no password.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Authority {
    /// Who logs in.
    pub user: Option<String>,
    /// The user's password.
    pub password: Option<String>,
    /// One address, or several with commas in between, as they are written: for [`Address::parse`].
    pub servers: String,
    /// What stands behind the first slash.
    pub path: String,
}

/// Where a server listens. Shown as `host:port`, or `[IPv6]:port`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Address {
    /// A name or an IP address.
    pub host: String,
    /// Its TCP port.
    pub port: u16,
}

/// A password, or the file that holds it. `Debug` shows neither.
#[derive(Clone)]
pub enum Password {
    /// The password.
    Text(String),
    /// A file that holds it, and perhaps a line end.
    File(PathBuf),
}

impl Url {
    /// Takes the part of a server's URL before the options apart.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if it does not start with `//`, or is not
    /// UTF-8. The text repeats no part of the URL.
    pub fn authority(&self) -> Result<Authority> {
        let rest = self.rest().strip_prefix("//");
        let rest = rest.ok_or_else(|| self.invalid(&format!("starts with {}://", self.scheme())))?;
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (who, servers) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (user, password) = who.split_once(':').unwrap_or((who, ""));
        let decoded = |text: &str| match percent_decode_str(text).decode_utf8() {
            Ok(text) => Ok(text.into_owned()),
            Err(_) => Err(self.invalid("has UTF-8 behind its percent signs")),
        };
        let unless_empty = |text: String| Some(text).filter(|text| !text.is_empty());
        Ok(Authority {
            user: unless_empty(decoded(user)?),
            password: unless_empty(decoded(password)?),
            servers: servers.into(),
            path: decoded(path)?,
        })
    }

    /// The password: the URL's own, or that of its option `password_file`, which is taken out.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) for both.
    pub fn take_password(&mut self, own: Option<String>) -> Result<Option<Password>> {
        match (own, self.take_option("password_file")) {
            (Some(_), Some(_)) => Err(self.invalid("has a password or a password_file, not both")),
            (own, file) => Ok(own.map(Password::Text).or_else(|| file.map(Password::in_file))),
        }
    }

    /// Takes an option out that is a duration, such as `1s` or `500ms`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) for what is none.
    pub fn take_duration(&mut self, key: &str) -> Result<Option<Duration>> {
        let read = self.take_option(key).map(|text| humantime::parse_duration(&text)).transpose();
        read.map_err(|_| self.invalid(&format!("has {key}=2s or another duration")))
    }

    /// An error that says what such a URL is like: `"names a user"`.
    #[must_use]
    pub fn invalid(&self, what_it_is_like: &str) -> Error {
        let article = if self.scheme().starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
        Error::invalid_input(format!("{article} {} URL {what_it_is_like}", self.scheme()))
    }
}

impl Address {
    /// This host, at this port.
    #[must_use]
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Self { host: host.into(), port }
    }

    /// Reads `host`, `host:port`, `[IPv6]` or `[IPv6]:port`. `None` for anything else.
    ///
    /// ```
    /// use lock_core::Address;
    ///
    /// assert_eq!(Address::parse("[::1]:7000", 6379), Some(Address::new("::1", 7000)));
    /// assert_eq!(Address::parse("db1", 6379), Some(Address::new("db1", 6379)));
    /// assert_eq!(Address::parse("db1:seven", 6379), None);
    /// ```
    #[must_use]
    pub fn parse(text: &str, usual_port: u16) -> Option<Self> {
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, port) = rest.split_once(']')?;
                (host, if port.is_empty() { None } else { Some(port.strip_prefix(':')?) })
            }
            None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
        };
        let port = port.map_or(Ok(usual_port), str::parse).ok()?;
        let legal =
            |c: char| !c.is_control() && !c.is_whitespace() && !matches!(c, '[' | ']' | '/' | '@' | ',');
        (!host.is_empty() && host.chars().all(legal)).then(|| Self::new(host, port))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

impl Password {
    /// The password. A file is read now, without the line end.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) for a file that cannot be read.
    pub fn read(&self) -> Result<String> {
        match self {
            Self::Text(password) => Ok(password.clone()),
            Self::File(path) => {
                let text = fs::read_to_string(path).map_err(|e| {
                    Error::invalid_input(format!("the password file {path:?} cannot be read")).with_source(e)
                })?;
                Ok(text.trim_end_matches(['\r', '\n']).to_owned())
            }
        }
    }

    /// The password in this file.
    #[must_use]
    pub fn in_file(path: impl AsRef<Path>) -> Self {
        Self::File(path.as_ref().into())
    }
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority")
            .field("servers", &self.servers)
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Result<Authority> {
        Url::parse(url)?.authority()
    }

    #[test]
    fn a_url_is_taken_apart_and_decoded() {
        let whole = read("etcd://m%40e:a%40b%3Ac@one:1,[::1]/app/a%20b?x=y").unwrap();
        assert_eq!((whole.user.as_deref(), whole.password.as_deref()), (Some("m@e"), Some("a@b:c")));
        assert_eq!((whole.servers.as_str(), whole.path.as_str()), ("one:1,[::1]", "app/a b"));
        let least = read("redis://h").unwrap();
        assert_eq!(least, read("redis://@h/").unwrap());
        assert_eq!((least.user, least.password, least.path.as_str()), (None, None, ""));
        assert_eq!(read("redis://:p@h").unwrap().password.as_deref(), Some("p"));
        for bad in ["redis:h", "redis:/h", "redis://me:%ff@h", "redis://h/%ff"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_address_is_shown_as_it_is_written() {
        for (text, shown) in [("h", "h:9"), ("h:1", "h:1"), ("[::1]", "[::1]:9"), ("[::1]:1", "[::1]:1")] {
            assert_eq!(Address::parse(text, 9).unwrap().to_string(), shown);
        }
        for bad in
            ["", ":1", "[]", "[::1", "[::1]x", "h:", "h:port", "h:70000", "h h", "::1", "h,i", "a/b", "[[x]]"]
        {
            assert_eq!(Address::parse(bad, 9), None, "{bad}");
        }
    }

    #[test]
    fn a_password_is_in_the_url_or_in_a_file() {
        let mut url = Url::parse("redis://h?password_file=/f").unwrap();
        assert!(url.clone().take_password(Some("s3cr3t".into())).is_err());
        assert!(matches!(url.take_password(None), Ok(Some(Password::File(path))) if path == Path::new("/f")));
        assert!(matches!(url.take_password(None), Ok(None)));
        let text = url.take_password(Some("s3cr3t".into())).unwrap().unwrap();
        assert_eq!((text.read().unwrap(), format!("{text:?}")), ("s3cr3t".into(), "…".into()));
    }

    #[test]
    fn a_password_file_ends_before_its_line_end() {
        let path = std::env::temp_dir().join(format!("lock-core-password-{}", std::process::id()));
        fs::write(&path, "s3cr3t \r\n").unwrap();
        assert_eq!(Password::in_file(&path).read().unwrap(), "s3cr3t ");
        fs::remove_file(&path).unwrap();
        assert!(Password::in_file(&path).read().unwrap_err().to_string().contains("cannot be read"));
    }

    #[test]
    fn nothing_secret_is_repeated() {
        let mut url = Url::parse("etcd://me:s3cr3t@h?connect_timeout=s3cr3t").unwrap();
        let error = url.take_duration("connect_timeout").unwrap_err();
        assert_eq!(error.to_string(), "an etcd URL has connect_timeout=2s or another duration");
        assert!(!format!("{:?} {error:?}", url.authority().unwrap()).contains("s3cr3t"));
    }
}
