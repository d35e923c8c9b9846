use std::{
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

use etcd_client::{Certificate, Identity, TlsOptions};
use lock_core::{Address, Error, Password, Result, Url};

use crate::keys::Prefix;

const PORT: u16 = 2379;

/// Where the cluster is and how to speak to it.
///
/// ```
/// # use lock_etcd::EtcdOptions;
/// # fn main() -> lock_core::Result<()> {
/// let options = EtcdOptions::new(["etcd-1:2379", "etcd-2:2379"])?.user("locks").tls();
/// # Ok(()) }
/// ```
///
/// The same as a URL: `etcds://locks@etcd-1:2379,etcd-2:2379`. `Debug` shows no password.
#[derive(Clone)]
pub struct EtcdOptions {
    members: Vec<Address>,
    tls: bool,
    root_certificates: Option<PathBuf>,
    client_certificate: Option<(PathBuf, PathBuf)>,
    user: Option<String>,
    password: Option<Password>,
    pub(crate) prefix: Prefix,
    pub(crate) connect_timeout: Duration,
}

impl EtcdOptions {
    /// The options that a URL may carry, beside core's own.
    pub const URL_KEYS: &'static [&'static str] = &["ca", "cert", "connect_timeout", "key", "password_file"];

    /// The members at these addresses, `host`, `host:port` or `[IPv6]:port`; 2379 is the usual port.
    ///
    /// They are asked in this order, the next one when the one before does not answer.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`](lock_core::ErrorKind::InvalidInput) for no address, or one that cannot
    /// be read.
    pub fn new<A: AsRef<str>>(members: impl IntoIterator<Item = A>) -> Result<Self> {
        let members: Option<Vec<_>> =
            members.into_iter().map(|member| Address::parse(member.as_ref(), PORT)).collect();
        let members = members.filter(|members| !members.is_empty());
        let members = members.ok_or_else(|| {
            Error::invalid_input("etcd's members are written host, host:port or [IPv6]:port")
        })?;
        Ok(Self {
            members,
            tls: false,
            root_certificates: None,
            client_certificate: None,
            user: None,
            password: None,
            prefix: Prefix::default(),
            connect_timeout: Duration::from_secs(1),
        })
    }

    /// Reads `etcd://[user[:password]@]host[:port][,host[:port]…][/prefix][?key=value&…]`; `etcds:` for TLS.
    ///
    /// User, password and prefix are percent-encoded. Options: `password_file`, `ca`, `cert` and `key` (PEM
    /// files), `connect_timeout`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`](lock_core::ErrorKind::InvalidInput) for what cannot be read. The text
    /// never repeats a user or password.
    pub fn from_url(mut url: Url) -> Result<Self> {
        let authority = url.authority()?;
        let mut options = Self::new(authority.servers.split(','))
            .map_err(|_| url.invalid("has members such as host:port,host:port after the // or the @"))?;
        options.tls = url.scheme() == "etcds";
        if !authority.path.is_empty() {
            options = options.prefix(authority.path)?;
        }
        options.user = authority.user;
        options.password = url.take_password(authority.password)?;
        if options.password.is_some() && options.user.is_none() {
            return Err(url.invalid("with a password names its user"));
        }
        let (ca, cert, key) = (url.take_option("ca"), url.take_option("cert"), url.take_option("key"));
        if !options.tls && (ca.is_some() || cert.is_some() || key.is_some()) {
            return Err(url.invalid("with ca, cert or key starts with etcds://"));
        }
        if let Some(path) = ca {
            options = options.root_certificates(path);
        }
        match (cert, key) {
            (None, None) => {}
            (Some(cert), Some(key)) => options = options.client_certificate(cert, key),
            _ => return Err(url.invalid("has both cert and key, or neither")),
        }
        if let Some(limit) = url.take_duration("connect_timeout")? {
            options = options.connect_timeout(limit);
        }
        url.deny_unknown_options(Self::URL_KEYS)?;
        Ok(options)
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

    /// TLS with a certificate of the client's own, and its key, both PEM files.
    #[must_use]
    pub fn client_certificate(mut self, certificate: impl AsRef<Path>, key: impl AsRef<Path>) -> Self {
        self.tls = true;
        self.client_certificate = Some((certificate.as_ref().into(), key.as_ref().into()));
        self
    }

    /// The user to log in as.
    #[must_use]
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.user = Some(user.into());
        self
    }

    /// The user's password.
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

    /// What goes in front of every key, and a slash after it; `polylock` by default.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`](lock_core::ErrorKind::InvalidInput) for an empty prefix, more than 255
    /// bytes, or control characters.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Result<Self> {
        self.prefix = Prefix::new(prefix)?;
        Ok(self)
    }

    /// How long opening one connection and logging in may take; 1 s by default.
    #[must_use]
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.connect_timeout = limit;
        self
    }

    /// `http://host:port` of each member.
    pub(crate) fn addresses(&self) -> Vec<String> {
        let scheme = if self.tls { "https" } else { "http" };
        self.members.iter().map(|member| format!("{scheme}://{member}")).collect()
    }

    /// User and password.
    pub(crate) fn login(&self) -> Result<Option<(String, String)>> {
        let Some(user) = self.user.clone() else { return Ok(None) };
        let password = self.password.as_ref().map(Password::read).transpose()?.unwrap_or_default();
        Ok(Some((user, password)))
    }

    pub(crate) fn tls_options(&self) -> Result<Option<TlsOptions>> {
        if !self.tls {
            return Ok(None);
        }
        let mut tls = match &self.root_certificates {
            Some(path) => {
                TlsOptions::new().ca_certificate(Certificate::from_pem(read(path, "root certificates file")?))
            }
            None => TlsOptions::new().with_native_roots(),
        };
        if let Some((certificate, key)) = &self.client_certificate {
            let (certificate, key) = (read(certificate, "certificate file")?, read(key, "key file")?);
            tls = tls.identity(Identity::from_pem(certificate, key));
        }
        Ok(Some(tls))
    }
}

impl fmt::Debug for EtcdOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdOptions")
            .field("members", &self.addresses())
            .field("root_certificates", &self.root_certificates)
            .field("client_certificate", &self.client_certificate)
            .field("user", &self.user)
            .field("password", &self.password)
            .field("prefix", &self.prefix)
            .field("connect_timeout", &self.connect_timeout)
            .finish()
    }
}

fn read(path: &Path, what: &str) -> Result<String> {
    std::fs::read_to_string(path)
        .map_err(|e| Error::invalid_input(format!("the {what} {path:?} cannot be read")).with_source(e))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Result<EtcdOptions> {
        EtcdOptions::from_url(Url::parse(url)?)
    }

    #[test]
    fn a_url_says_all_that_the_builder_can() {
        let options = read("etcd://127.0.0.1").unwrap();
        assert_eq!(options.addresses(), ["http://127.0.0.1:2379"]);
        assert_eq!(options.prefix, Prefix::default());
        let options = read(
            "etcds://me:a%40b%3Ac@one:1,[::1]:2,three/app/locks?ca=/ca.pem&cert=/c.pem&key=/k.pem&connect_timeout=2s",
        )
        .unwrap();
        assert_eq!(options.addresses(), ["https://one:1", "https://[::1]:2", "https://three:2379"]);
        assert_eq!(options.login().unwrap(), Some(("me".into(), "a@b:c".into())));
        assert_eq!(options.prefix, Prefix::new("app/locks").unwrap());
        assert_eq!(options.root_certificates.as_deref(), Some(Path::new("/ca.pem")));
        assert_eq!(options.client_certificate, Some(("/c.pem".into(), "/k.pem".into())));
        assert_eq!(options.connect_timeout, Duration::from_secs(2));
    }

    #[test]
    fn what_cannot_be_read_is_refused_without_repeating_secrets() {
        for bad in [
            "etcd:h",
            "etcd://",
            "etcd://me:s3cr3t@",
            "etcd://:s3cr3t@h",
            "etcd://me:s3cr3t@h:port",
            "etcd://me:s3cr3t@h,",
            "etcd://me:s3cr3t@h:70000",
            "etcd://me:s3cr3t@[::1",
            "etcd://me:s3cr3t@h h",
            "etcd://me:%ff-s3cr3t@h",
            "etcd://me:s3cr3t@h/%0a",
            "etcd://me:s3cr3t@h?password_file=/f",
            "etcd://h?password_file=/f",
            "etcd://me:s3cr3t@h?ca=/ca.pem",
            "etcds://me:s3cr3t@h?cert=/c.pem",
            "etcd://me:s3cr3t@h?connect_timeout=s3cr3t",
            "etcd://me:s3cr3t@h?prefix=a",
        ] {
            let error = read(bad).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("s3cr3t"), "{bad}: {error:?}");
        }
    }

    #[test]
    fn debug_shows_no_password() {
        let shown = format!("{:?}", EtcdOptions::new(["h"]).unwrap().user("me").password("s3cr3t"));
        assert!(!shown.contains("s3cr3t") && shown.contains("\"me\""), "{shown}");
    }
}
