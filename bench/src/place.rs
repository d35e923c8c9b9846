//! Where a run measures: one URL, and names there that nobody else uses.

use std::fmt;

use futures_util::FutureExt;
use polylock::{Address, Authority, Driver, Error, Url};
use serde::{Deserialize, Serialize};

use crate::failure::{Failure, Result};

/// A server, by the URL that its user gave, and this run's mark on everything that it makes there.
///
/// `Debug` shows no password.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Place {
    url: String,
    mark: String,
}

impl Place {
    /// Fails for a URL that this build cannot connect to.
    pub(crate) fn new(url: &str) -> std::result::Result<Self, Error> {
        let parsed = Url::parse(url)?;
        let random = polylock::Owner::random()?.to_hex();
        let place = Self { url: url.into(), mark: format!("polylock-bench-{}", &random[..8]) };
        if place.find(&parsed).is_some() {
            return Ok(place);
        }
        // Connecting fails at once, with the schemes that there are and the feature that adds this one.
        match polylock::connect(url).now_or_never() {
            Some(Err(error)) => Err(error),
            _ => Err(Error::invalid_input(format!("no backend answers to {}:", parsed.scheme()))),
        }
    }

    /// The backend: `redis`, `etcd`, …
    pub(crate) fn backend(&self) -> &'static str {
        self.parsed().ok().and_then(|url| self.find(&url)).map_or("unknown", |driver| driver.name)
    }

    pub(crate) fn driver(&self) -> Result<&'static Driver> {
        self.find(&self.parsed()?).ok_or_else(|| Failure::new("no backend answers to this URL"))
    }

    fn find(&self, url: &Url) -> Option<&'static Driver> {
        polylock::drivers().iter().find(|driver| driver.schemes.contains(&url.scheme()))
    }

    pub(crate) fn parsed(&self) -> Result<Url> {
        Ok(Url::parse(&self.url)?)
    }

    /// The URL without its secrets.
    pub(crate) fn shown(&self) -> String {
        self.parsed().map_or_else(|_| "?".into(), |url| url.to_string())
    }

    /// What everything of this run is called.
    pub(crate) fn mark(&self) -> &str {
        &self.mark
    }

    /// A name of this run's.
    pub(crate) fn name(&self, of: &str) -> String {
        format!("{}-{of}", self.mark)
    }

    /// The URL under which we lock: what cannot be called by the name alone is put in a folder, node or
    /// table of its own.
    pub(crate) fn ours(&self) -> String {
        let (path, query) = self.url.split_once('?').map_or((&*self.url, None), |(p, q)| (p, Some(q)));
        let (path, query) = match self.backend() {
            "file" | "zookeeper" => {
                (format!("{}/{}", path.trim_end_matches('/'), self.mark), query.map(str::to_owned))
            }
            "mysql" => {
                let others = query.unwrap_or("").split('&').filter(|option| !option.starts_with("table="));
                let table = format!("table={}", self.table());
                let options: Vec<_> = others.filter(|o| !o.is_empty()).chain([&*table]).collect();
                (path.to_owned(), Some(options.join("&")))
            }
            _ => (path.to_owned(), query.map(str::to_owned)),
        };
        query.map_or_else(|| path.clone(), |query| format!("{path}?{query}"))
    }

    /// The table under which we lock in a database.
    pub(crate) fn table(&self) -> String {
        self.mark.replace('-', "_")
    }

    /// `user` and `password` of the URL; the password may be in a file.
    pub(crate) fn credentials(&self) -> Result<(Option<String>, Option<String>)> {
        let mut url = self.parsed()?;
        let Authority { user, password, .. } = url.authority()?;
        let password = url.take_password(password)?;
        Ok((user, password.map(|password| password.read()).transpose()?))
    }

    /// The servers, and the path behind them.
    pub(crate) fn addresses(&self, usual_port: u16) -> Result<(Vec<Address>, String)> {
        let Authority { servers, path, .. } = self.parsed()?.authority()?;
        let addresses: Option<_> =
            servers.split(',').map(|server| Address::parse(server, usual_port)).collect();
        Ok((addresses.ok_or_else(|| Failure::new("the URL has an address that cannot be read"))?, path))
    }

    /// The text without the URL's password, which a driver may have put into it.
    pub(crate) fn scrub(&self, text: &str) -> String {
        let authority = self.parsed().and_then(|url| Ok(url.authority()?));
        let own = authority.ok().and_then(|authority| authority.password);
        let read = self.credentials().ok().and_then(|(_, password)| password);
        let secrets = own.into_iter().chain(read).filter(|secret| !secret.is_empty());
        secrets.fold(text.to_owned(), |text, secret| text.replace(&secret, "…"))
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Place({}, {})", self.shown(), self.mark)
    }
}

#[cfg(all(test, feature = "memory"))]
mod tests {
    use super::*;

    fn place(url: &str) -> Place {
        Place { url: url.into(), mark: "polylock-bench-0".into() }
    }

    #[test]
    fn a_place_shows_no_password() {
        let place = place("redis://me:s3cr3t@host/0?password_file=x");
        assert!(!format!("{place:?} {}", place.shown()).contains("s3cr3t"));
        assert_eq!(place.scrub("no s3cr3t here"), "no … here");
    }

    #[test]
    fn the_servers_of_a_url_are_found() {
        let (servers, path) = place("etcd://me:a@h1:1,[::1]:2,h3/x/y?ca=z").addresses(9).unwrap();
        assert_eq!(servers, [Address::new("h1", 1), Address::new("::1", 2), Address::new("h3", 9)]);
        assert_eq!(path, "x/y");
    }

    #[test]
    fn what_has_no_backend_is_refused() {
        assert!(Place::new("memory:").is_ok());
        assert!(Place::new("pigeon://h").is_err());
    }

    #[cfg(feature = "file")]
    #[test]
    fn we_lock_in_a_folder_of_our_own() {
        assert_eq!(place("file:///tmp/x/?ttl=1s").ours(), "file:///tmp/x/polylock-bench-0?ttl=1s");
    }

    #[cfg(feature = "mysql")]
    #[test]
    fn we_lock_in_a_table_of_our_own() {
        assert_eq!(
            place("mysql://u@h/d?table=a&tls=verify").ours(),
            "mysql://u@h/d?tls=verify&table=polylock_bench_0"
        );
    }
}
