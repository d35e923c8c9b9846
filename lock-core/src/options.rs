use std::{sync::Arc, time::Duration};

use crate::{Error, Lease, Moment, Result};

/// How locks are held: lease, safety margins and bounds. Durations in URLs are written `500ms`, `30s`,
/// `2m`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Options {
    /// How long a lock outlives its holder at the least, and how often it is renewed (every third).
    /// URL: `ttl`. Default 30 s; from 50 ms to 24 h.
    pub ttl: Duration,
    /// How much longer than `ttl` the server keeps the lock: the time that work has to stop after a loss
    /// was signalled. URL: `grace`. Default: a tenth of `ttl`, at least 100 ms. Chubby and Consul call
    /// it the lock delay.
    pub grace: Option<Duration>,
    /// By which part of a lease the clocks of client and server may drift apart. URL: `drift`. Default
    /// 0.01; less than 0.5. NTP slews by at most 0.0005, chrony by up to 0.083 if so configured.
    pub drift: f64,
    /// Taken off every lease for timer ticks. URL: `margin`. Default 3 ms.
    pub margin: Duration,
    /// The longest time that a lock may be held, so that a hung task cannot keep it by renewals. URL:
    /// `max_hold`. Default: none.
    pub max_hold: Option<Duration>,
    /// How long one request to the server may take. URL: `verb_limit`. Default: a sixth of `ttl`, from
    /// 50 ms to 2 s.
    pub verb_limit: Option<Duration>,
    /// How many tasks of this process may wait for one name; ten times as many for all names together.
    /// URL: `waiters`. Default 10,000.
    pub waiters: usize,
    /// Stored beside the owner, for people who look at the server: at most 64 printable ASCII characters
    /// without spaces. URL: `label`. Default `host:pid`.
    pub label: Option<Arc<str>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            ttl: Duration::from_secs(30),
            grace: None,
            drift: 0.01,
            margin: Duration::from_millis(3),
            max_hold: None,
            verb_limit: None,
            waiters: 10_000,
            label: None,
        }
    }
}

impl Options {
    /// The options that a URL may carry.
    pub const URL_KEYS: &'static [&'static str] =
        &["ttl", "grace", "drift", "margin", "max_hold", "verb_limit", "waiters", "label"];

    /// Sets [`ttl`](Self::ttl).
    #[must_use]
    pub fn with_ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Sets [`grace`](Self::grace).
    #[must_use]
    pub fn with_grace(mut self, grace: Duration) -> Self {
        self.grace = Some(grace);
        self
    }

    /// Sets [`drift`](Self::drift).
    #[must_use]
    pub fn with_drift(mut self, drift: f64) -> Self {
        self.drift = drift;
        self
    }

    /// Sets [`margin`](Self::margin).
    #[must_use]
    pub fn with_margin(mut self, margin: Duration) -> Self {
        self.margin = margin;
        self
    }

    /// Sets [`max_hold`](Self::max_hold).
    #[must_use]
    pub fn with_max_hold(mut self, max_hold: Duration) -> Self {
        self.max_hold = Some(max_hold);
        self
    }

    /// Sets [`verb_limit`](Self::verb_limit).
    #[must_use]
    pub fn with_verb_limit(mut self, verb_limit: Duration) -> Self {
        self.verb_limit = Some(verb_limit);
        self
    }

    /// Sets [`waiters`](Self::waiters).
    #[must_use]
    pub fn with_waiters(mut self, waiters: usize) -> Self {
        self.waiters = waiters;
        self
    }

    /// Sets [`label`](Self::label).
    #[must_use]
    pub fn with_label(mut self, label: impl Into<Arc<str>>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// Sets the option of a URL key.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) for an unknown key or a value that
    /// cannot be read. Bounds are checked when the options are used.
    pub fn set(mut self, key: &str, value: &str) -> Result<Self> {
        let unreadable = |what: &str| Error::invalid_input(format!("{key}={value:?} is not {what}"));
        let duration = || {
            humantime::parse_duration(value).map_err(|e| unreadable("a duration such as 30s").with_source(e))
        };
        match key {
            "ttl" => self.ttl = duration()?,
            "grace" => self.grace = Some(duration()?),
            "drift" => {
                let drift = value.parse::<f64>();
                self.drift = drift.map_err(|e| unreadable("a fraction such as 0.01").with_source(e))?;
            }
            "margin" => self.margin = duration()?,
            "max_hold" => self.max_hold = Some(duration()?),
            "verb_limit" => self.verb_limit = Some(duration()?),
            "waiters" => {
                let waiters = value.parse::<usize>();
                self.waiters = waiters.map_err(|e| unreadable("a number").with_source(e))?;
            }
            "label" => self.label = Some(value.into()),
            _ => return Err(Error::invalid_input(format!("there is no option {key:?}"))),
        }
        Ok(self)
    }

    pub(crate) fn terms(&self) -> Result<Terms> {
        let Self { ttl, drift, margin, max_hold, waiters, .. } = *self;
        let invalid = |text: String| Err(Error::invalid_input(text));
        let shown = humantime::format_duration;
        if !(MIN_TTL..=MAX_TTL).contains(&ttl) {
            return invalid(format!(
                "a ttl of {ttl:?} is not between {} and {}",
                shown(MIN_TTL),
                shown(MAX_TTL)
            ));
        }
        if !(0.0..0.5).contains(&drift) {
            return invalid(format!("a drift of {drift} is not between 0 and 0.5"));
        }
        let grace = self.grace.unwrap_or_else(|| (ttl / 10).max(Duration::from_millis(100)));
        if grace > MAX_TTL {
            return invalid(format!("a grace of {grace:?} is longer than {}", shown(MAX_TTL)));
        }
        if margin > ttl / 4 {
            return invalid(format!("a margin of {margin:?} is more than a quarter of the ttl of {ttl:?}"));
        }
        if max_hold.is_some_and(|max_hold| max_hold.is_zero()) {
            return invalid("a max_hold of zero would end every lock at once".into());
        }
        if waiters == 0 {
            return invalid("waiters must be at least 1".into());
        }
        let default_limit = (ttl / 6).clamp(Duration::from_millis(50), Duration::from_secs(2));
        let verb_limit = self.verb_limit.unwrap_or(default_limit);
        if verb_limit.is_zero() || verb_limit > MAX_TTL {
            return invalid(format!(
                "a verb_limit of {verb_limit:?} is not between 1ns and {}",
                shown(MAX_TTL)
            ));
        }
        let label = self.label.clone().unwrap_or_else(default_label);
        if label.is_empty() || label.len() > 64 || !label.bytes().all(|b| b.is_ascii_graphic()) {
            return invalid(format!(
                "the label {label:?} is not 1 to 64 printable ASCII characters without spaces"
            ));
        }
        Ok(Terms { ttl, grace, drift, margin, max_hold, verb_limit, waiters, label })
    }
}

const MIN_TTL: Duration = Duration::from_millis(50);
const MAX_TTL: Duration = Duration::from_secs(24 * 3600);

fn default_label() -> Arc<str> {
    #[cfg(unix)]
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    #[cfg(not(unix))]
    let host = std::env::var("COMPUTERNAME").unwrap_or_default();
    let host: String = host.chars().filter(char::is_ascii_graphic).take(48).collect();
    format!("{host}:{}", std::process::id()).into()
}

/// [`Options`], checked and complete.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) ttl: Duration,
    pub(crate) grace: Duration,
    drift: f64,
    margin: Duration,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) verb_limit: Duration,
    pub(crate) waiters: usize,
    pub(crate) label: Arc<str>,
}

impl Terms {
    /// What the server is asked for.
    pub(crate) fn lease(&self) -> Duration {
        self.ttl + self.grace
    }

    /// For how long the holder may use a lease of this length.
    pub(crate) fn usable(&self, length: Duration) -> Duration {
        length.saturating_sub(self.grace).mul_f64(1.0 - self.drift).saturating_sub(self.margin)
    }

    /// Until when the holder may use a lease.
    pub(crate) fn valid_until(&self, lease: Lease) -> Moment {
        lease.since + self.usable(lease.length)
    }

    /// How long one renewal may take: a sixth of the ttl, so that two fit between the first and the end.
    pub(crate) fn renewal_limit(&self) -> Duration {
        (self.ttl / 6).min(self.verb_limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_uses_less_than_the_server_keeps() {
        let terms = Options::default().with_ttl(Duration::from_secs(10)).terms().unwrap();
        assert_eq!(terms.lease(), Duration::from_secs(11));
        let since = Moment::from_start(Duration::from_secs(100));
        let until = terms.valid_until(Lease::new(since, terms.lease()));
        // 10 s less 1 % less 3 ms.
        assert_eq!(until, Moment::from_start(Duration::from_millis(109_897)));
        assert_eq!(terms.valid_until(Lease::new(since, Duration::ZERO)), since);
    }

    #[test]
    fn what_cannot_work_is_refused_when_it_is_set() {
        let ok = Options::default();
        let bad = [
            ok.clone().with_ttl(Duration::ZERO),
            ok.clone().with_ttl(Duration::from_nanos(1)),
            ok.clone().with_ttl(Duration::from_micros(999)),
            ok.clone().with_ttl(Duration::MAX),
            ok.clone().with_ttl(Duration::from_millis(u64::MAX)),
            ok.clone().with_grace(Duration::MAX),
            ok.clone().with_drift(0.5),
            ok.clone().with_drift(f64::NAN),
            ok.clone().with_drift(-0.1),
            ok.clone().with_margin(Duration::from_secs(20)),
            ok.clone().with_max_hold(Duration::ZERO),
            ok.clone().with_verb_limit(Duration::ZERO),
            ok.clone().with_waiters(0),
            ok.clone().with_label("two words"),
        ];
        for options in bad {
            assert!(options.terms().is_err(), "{options:?}");
        }
        assert!(ok.with_ttl(Duration::from_micros(123_450)).terms().is_ok());
    }

    #[test]
    fn every_url_key_can_be_set_and_a_bad_value_is_named() {
        let values = ["5s", "1s", "0.1", "1ms", "1m", "100ms", "7", "me"];
        let mut options = Options::default();
        for (key, value) in Options::URL_KEYS.iter().zip(values) {
            options = options.set(key, value).unwrap();
        }
        assert_eq!(options.ttl, Duration::from_secs(5));
        assert_eq!(options.label.as_deref(), Some("me"));
        let error = options.set("ttl", "soon").unwrap_err().to_string();
        assert!(error.contains("ttl=\"soon\""), "{error}");
    }
}
