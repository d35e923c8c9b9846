//! Where the locks are: the URL from the arguments, the environment, a file, or the user's directory.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs::{self, DirBuilder},
    os::unix::{ffi::OsStrExt, fs::DirBuilderExt},
    path::{Path, PathBuf},
};

use percent_encoding::{AsciiSet, CONTROLS, percent_encode};
use polylock::{Driver, Options, Url};

use crate::{
    args::Server,
    exit::{Failure, INTERNAL},
};

/// The variables that hold a URL, or the path of a file that does.
pub(crate) const URL: &str = "POLYLOCK_URL";
const URL_FILE: &str = "POLYLOCK_URL_FILE";

/// The value that takes the place of a URL with a secret in COMMAND's environment. A `polylock` inside
/// COMMAND stops at it, instead of quietly locking somewhere else.
const WITHHELD: &str = "withheld:";

/// A backend and where it is.
#[derive(Debug)]
pub(crate) struct Location {
    pub(crate) driver: &'static Driver,
    pub(crate) url: Url,
    /// Options that the URL's query gave.
    pub(crate) options: Options,
}

impl Location {
    /// Finds the URL: the arguments win over the environment, a URL over a file.
    pub(crate) async fn find(server: &Server) -> Result<Self, Failure> {
        if let Some(url) = &server.url {
            return Self::parse(url).await;
        }
        if let Some(path) = &server.url_file {
            return Self::parse(&read(path)?).await;
        }
        if let Some(url) = env::var_os(URL).filter(|url| !url.is_empty()) {
            let url = url.into_string().map_err(|_| Failure::usage(format!("{URL} is not UTF-8")))?;
            if url == WITHHELD {
                return Err(Failure::usage(format!(
                    "{URL} held a secret and was withheld from this command by an outer `polylock run`; \
                     give --url-file or set {URL_FILE}, which are passed on"
                )));
            }
            return Self::parse(&url).await;
        }
        if let Some(path) = env::var_os(URL_FILE).filter(|path| !path.is_empty()) {
            return Self::parse(&read(path.as_ref())?).await;
        }
        Self::parse(&default_url(env::var_os("XDG_STATE_HOME"), env::var_os("HOME"))?).await
    }

    async fn parse(text: &str) -> Result<Self, Failure> {
        let mut url = Url::parse(text)?;
        let answers = |driver: &&Driver| driver.schemes.contains(&url.scheme());
        let Some(driver) = polylock::drivers().iter().find(answers) else {
            // Connecting fails with the list of schemes that there are, and the feature that adds this one.
            return Err(match polylock::connect(text).await {
                Err(error) => error.into(),
                Ok(_) => Failure::new(INTERNAL, format!("{}: connects without a driver", url.scheme())),
            });
        };
        let options = url.take_core_options(Options::default())?;
        Ok(Self { driver, url, options })
    }
}

/// What COMMAND's environment may hold of the URL in ours: all of it unless there is a secret in it.
///
/// `None`: leave it as it is.
pub(crate) fn withheld() -> Option<&'static str> {
    let url = env::var_os(URL)?;
    let shown = url.to_str().and_then(|url| Url::parse(url).ok()).map(|url| url.to_string());
    (shown.as_deref().map(OsStr::new) != Some(&url)).then_some(WITHHELD)
}

/// The URL in a file.
pub(crate) fn read(path: &Path) -> Result<String, Failure> {
    let text = fs::read_to_string(path).map_err(|error| {
        Failure::usage(format!("the URL file {} cannot be read: {error}", path.display()))
    })?;
    let url = text.trim();
    if url.is_empty() || url.contains(char::is_whitespace) {
        return Err(Failure::usage(format!("the URL file {} does not hold one URL", path.display())));
    }
    Ok(url.into())
}

/// A directory of the user's that survives a reboot: fencing tokens would start again with an empty one.
fn default_url(state: Option<OsString>, home: Option<OsString>) -> Result<String, Failure> {
    // Relative paths are to be ignored, says the XDG specification.
    let absolute = |path: Option<OsString>| path.map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute(state).or_else(|| absolute(home).map(|home| home.join(".local/state")));
    let state = state.ok_or_else(|| {
        Failure::usage("there is no HOME to keep locks in: give --url, such as --url file:///var/lib/locks")
    })?;
    DirBuilder::new().recursive(true).mode(0o700).create(&state).map_err(|error| {
        Failure::usage(format!("{} cannot be made: {error}; give another --url", state.display()))
    })?;
    let path = state.join("polylock");
    Ok(format!("file://{}", percent_encode(path.as_os_str().as_bytes(), RESERVED)))
}

const RESERVED: &AsciiSet = &CONTROLS.add(b' ').add(b'%').add(b'?').add(b'#');

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_the_users_state_directory() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().to_str().unwrap();
        let os = |text: String| Some(OsString::from(text));
        let url = |state, home| default_url(state, home).unwrap();
        assert_eq!(url(os(format!("{root}/s p")), os(root.into())), format!("file://{root}/s%20p/polylock"));
        assert_eq!(url(None, os(root.into())), format!("file://{root}/.local/state/polylock"));
        assert_eq!(url(os("rel".into()), os(root.into())), format!("file://{root}/.local/state/polylock"));
        assert!(default_url(None, None).is_err());
    }

    #[test]
    fn a_url_file_holds_one_url_and_its_text_is_never_repeated() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("url");
        fs::write(&path, "redis://:s3cr3t@host\n").unwrap();
        assert_eq!(read(&path).unwrap(), "redis://:s3cr3t@host");
        fs::write(&path, "redis://:s3cr3t@host\nmore\n").unwrap();
        assert!(!format!("{:?}", read(&path).unwrap_err()).contains("s3cr3t"));
    }
}
