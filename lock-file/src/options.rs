use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use lock_core::{Error, Result, Url};
use percent_encoding::percent_decode_str;

/// Where the locks are kept.
///
/// ```
/// let options = lock_file::FileOptions::new("/var/lib/locks");
/// assert_eq!(options.directory().to_str(), Some("/var/lib/locks"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileOptions {
    directory: PathBuf,
    network: bool,
}

impl FileOptions {
    /// Locks in this directory, which is created (mode 0700) when it is missing. The path is absolute.
    #[must_use]
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into(), network: false }
    }

    /// Reads `file:///var/lib/locks?force_network=true`. The path may be percent-encoded.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`](lock_core::ErrorKind::InvalidInput) for a path that is not absolute,
    /// a host other than `localhost`, or an option that does not exist.
    pub fn from_url(mut url: Url) -> Result<Self> {
        let mut options = Self::new(path(&url)?);
        match url.take_option("force_network").as_deref() {
            None | Some("false") => {}
            Some("true") => options = options.force_network(),
            Some(other) => {
                return Err(Error::invalid_input(format!("force_network={other:?} is not true or false")));
            }
        }
        url.deny_unknown_options(&["force_network"])?;
        Ok(options)
    }

    /// Accepts a directory on a network file system. URL: `force_network=true`.
    ///
    /// All contenders must then run on *one* machine all the same: the deadlines are on its boot clock,
    /// and the notifications of other machines' changes do not arrive. What the file system does with
    /// kernel locks and `fsync` is its own affair, so the guarantees become yours to judge.
    #[must_use]
    pub fn force_network(mut self) -> Self {
        self.network = true;
        self
    }

    /// The directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Whether network file systems are accepted.
    #[cfg(target_os = "linux")]
    pub(crate) fn network(&self) -> bool {
        self.network
    }
}

/// The directory in a URL.
pub(crate) fn path(url: &Url) -> Result<PathBuf> {
    let rest = url.rest();
    // RFC 8089 has three forms: file:/path, file:///path and file://localhost/path.
    let path = match rest.strip_prefix("//") {
        Some(rest) => rest.strip_prefix("localhost").unwrap_or(rest),
        None => rest,
    };
    if !path.starts_with('/') {
        return Err(Error::invalid_input(
            "a file URL holds an absolute path after three slashes: file:///var/lib/locks",
        ));
    }
    let bytes: Vec<u8> = percent_decode_str(path).collect();
    if bytes.contains(&0) {
        return Err(Error::invalid_input("a file URL's path holds a zero byte"));
    }
    os_string(bytes).map(PathBuf::from)
}

#[cfg(unix)]
fn os_string(bytes: Vec<u8>) -> Result<OsString> {
    Ok(std::os::unix::ffi::OsStringExt::from_vec(bytes))
}

#[cfg(not(unix))]
fn os_string(bytes: Vec<u8>) -> Result<OsString> {
    let text = String::from_utf8(bytes);
    Ok(text.map_err(|e| Error::invalid_input("a file URL's path is not UTF-8").with_source(e))?.into())
}

#[cfg(test)]
mod tests {
    use lock_core::ErrorKind;

    use super::*;

    fn read(url: &str) -> Result<FileOptions> {
        FileOptions::from_url(Url::parse(url)?)
    }

    #[test]
    fn the_three_forms_of_an_absolute_path_are_read() {
        for url in ["file:///var/lock%20s", "file://localhost/var/lock%20s", "file:/var/lock s"] {
            assert_eq!(read(url).unwrap(), FileOptions::new("/var/lock s"), "{url}");
        }
        assert_eq!(read("file:///l?force_network=true").unwrap(), FileOptions::new("/l").force_network());
        assert_eq!(read("file:///l?force_network=false").unwrap(), FileOptions::new("/l"));
    }

    #[test]
    fn what_is_no_absolute_path_is_refused() {
        for url in ["file:", "file:relative", "file://host/share", "file://localhostess/x", "file:///a%00b"] {
            assert_eq!(read(url).unwrap_err().kind(), ErrorKind::InvalidInput, "{url}");
        }
        for url in ["file:///l?force_network=yes", "file:///l?forse_network=true"] {
            assert_eq!(read(url).unwrap_err().kind(), ErrorKind::InvalidInput, "{url}");
        }
    }
}
