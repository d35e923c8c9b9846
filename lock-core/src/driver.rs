use std::{fmt, future::Future, pin::Pin};

use percent_encoding::percent_decode_str;

use crate::{Backend, Error, Guarantees, Name, Options, Result};

/// How a URL becomes a backend. Each backend crate exports one as `pub const DRIVER`.
#[derive(Clone, Copy)]
pub struct Driver {
    /// The Cargo feature and the name in lists: `"redis"`.
    pub name: &'static str,
    /// The URL schemes it answers to, without `:`.
    pub schemes: &'static [&'static str],
    /// A URL to show in help texts.
    pub example: &'static str,
    /// What is promised when nothing about the server is known.
    pub guarantees: fn() -> Guarantees,
    /// Connects. The URL no longer holds core's own options.
    pub connect: fn(Url) -> Connecting,
    /// The key, node, row or file that stands for a name, for an operator to look at. No I/O.
    pub key: fn(&Url, &Name) -> Result<String>,
}

/// The future of [`Driver::connect`].
pub type Connecting = Pin<Box<dyn Future<Output = Result<Box<dyn Backend>>> + Send>>;

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver")
            .field("name", &self.name)
            .field("schemes", &self.schemes)
            .finish_non_exhaustive()
    }
}

/// A backend's URL, split just far enough: `scheme:rest?key=value&…`.
///
/// Its `Debug` and `Display` never show what stands between `//` and `@`, nor the values of the query.
#[derive(Clone, PartialEq, Eq)]
pub struct Url {
    scheme: String,
    rest: String,
    query: Vec<(String, String)>,
}

impl Url {
    /// Splits a URL.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if it has no scheme, or a query that
    /// is not `key=value&…` with each key once. The text does not repeat the URL, which may hold a
    /// password.
    pub fn parse(url: &str) -> Result<Self> {
        let invalid = |text: &str| Error::invalid_input(text);
        let (scheme, rest) = url.split_once(':').ok_or_else(|| {
            invalid("a lock URL starts with a scheme, such as file:///var/lib/locks or redis://127.0.0.1")
        })?;
        let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.');
        if scheme.is_empty() || !scheme.bytes().all(legal) {
            return Err(invalid("a lock URL's scheme has letters, digits, +, - and . only"));
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut parsed = Self { scheme: scheme.to_ascii_lowercase(), rest: rest.into(), query: Vec::new() };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair
                .split_once('=')
                .ok_or_else(|| invalid("a lock URL's options are written ?key=value&key=value"))?;
            let (key, value) = (decode(key)?, decode(value)?);
            if parsed.option(&key).is_some() {
                return Err(invalid(&format!("the URL option {key:?} is given twice")));
            }
            parsed.query.push((key, value));
        }
        Ok(parsed)
    }

    /// The scheme in lower case, without `:`.
    #[must_use]
    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// What stands between the scheme's `:` and the `?`, still percent-encoded.
    #[must_use]
    pub fn rest(&self) -> &str {
        &self.rest
    }

    /// The decoded value of an option.
    #[must_use]
    pub fn option(&self, key: &str) -> Option<&str> {
        self.query.iter().find(|(k, _)| k == key).map(|(_, value)| value.as_str())
    }

    /// Takes an option out, decoded.
    pub fn take_option(&mut self, key: &str) -> Option<String> {
        let index = self.query.iter().position(|(k, _)| k == key)?;
        Some(self.query.remove(index).1)
    }

    /// Takes the options that core understands (`ttl`, `grace`, …) out of the URL.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) for a value that cannot be read.
    pub fn take_core_options(&mut self, mut options: Options) -> Result<Options> {
        for key in Options::URL_KEYS {
            if let Some(value) = self.take_option(key) {
                options = options.set(key, &value)?;
            }
        }
        Ok(options)
    }

    /// To be called when all known options were taken.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if one is left, listing `known` and
    /// core's own.
    pub fn deny_unknown_options(&self, known: &[&str]) -> Result<()> {
        let Some((key, _)) = self.query.iter().find(|(key, _)| !known.contains(&key.as_str())) else {
            return Ok(());
        };
        let scheme = &self.scheme;
        let known = [known, Options::URL_KEYS].concat().join(", ");
        Err(Error::invalid_input(format!("{scheme}: has no URL option {key:?}; there are: {known}")))
    }
}

fn decode(text: &str) -> Result<String> {
    let decoded = percent_decode_str(text).decode_utf8();
    Ok(decoded.map_err(|e| Error::invalid_input("a URL option is not UTF-8").with_source(e))?.into_owned())
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rest = match (self.rest.strip_prefix("//"), self.rest.rsplit_once('@')) {
            (Some(_), Some((_, host))) => format!("//…@{host}"),
            _ => self.rest.clone(),
        };
        write!(f, "{}:{rest}", self.scheme)?;
        for (i, (key, _)) in self.query.iter().enumerate() {
            write!(f, "{}{key}=…", if i == 0 { '?' } else { '&' })?;
        }
        Ok(())
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Url({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_splits_and_hides_its_secrets() {
        let mut url = Url::parse("REDIS://me:s3cr3t@host:1/0?prefix=a%2Fb&ttl=5s&token=s3cr3t").unwrap();
        assert_eq!((url.scheme(), url.rest()), ("redis", "//me:s3cr3t@host:1/0"));
        assert_eq!(url.option("prefix"), Some("a/b"));
        let options = url.take_core_options(Options::default()).unwrap();
        assert_eq!(options.ttl, std::time::Duration::from_secs(5));
        assert_eq!(url.option("ttl"), None);
        assert_eq!(format!("{url}"), "redis://…@host:1/0?prefix=…&token=…");
        assert!(!format!("{url:?}").contains("s3cr3t"));
        let error = url.deny_unknown_options(&["prefix"]).unwrap_err().to_string();
        assert!(error.contains("\"token\"") && error.contains("prefix, ttl"), "{error}");
    }

    #[test]
    fn what_is_no_url_is_refused_without_repeating_it() {
        for bad in ["", "s3cr3t", "s3cr3t x:", ":", "redis://h?s3cr3t", "redis://h?s3cr3t=1&s3cr3t"] {
            let error = Url::parse(bad).unwrap_err();
            assert!(!format!("{error:?}").contains("s3cr3t"), "{error:?}");
        }
        assert!(Url::parse("redis://h?a=1&a=2").is_err());
    }
}
