use crate::{Driver, Error, ErrorKind, Result, Url};

/// The backends that this build can connect to, in the order of their features in `Cargo.toml`.
///
/// ```
/// for driver in polylock::drivers() {
///     println!("{}: {}", driver.name, driver.example);
/// }
/// ```
#[must_use]
pub const fn drivers() -> &'static [Driver] {
    DRIVERS
}

const DRIVERS: &[Driver] = &[
    #[cfg(feature = "file")]
    lock_file::DRIVER,
    #[cfg(feature = "memory")]
    lock_core::memory::DRIVER,
    #[cfg(feature = "redis")]
    lock_redis::DRIVER,
    #[cfg(feature = "etcd")]
    lock_etcd::DRIVER,
    #[cfg(feature = "zookeeper")]
    lock_zookeeper::DRIVER,
    #[cfg(feature = "mysql")]
    lock_mysql::DRIVER,
];

/// Every scheme that some build of this version answers to, and the Cargo feature that adds it.
const FEATURES: &[(&str, &str)] = &[
    ("file", "file"),
    ("memory", "memory"),
    ("redis", "redis"),
    ("rediss", "redis"),
    ("etcd", "etcd"),
    ("etcds", "etcd"),
    ("zookeeper", "zookeeper"),
    ("mysql", "mysql"),
    ("mariadb", "mysql"),
];

/// The driver of a URL's scheme.
pub(crate) fn of(url: &Url) -> Result<&'static Driver> {
    let scheme = url.scheme();
    let answers = |driver: &&Driver| driver.schemes.contains(&scheme);
    drivers().iter().find(answers).ok_or_else(|| unknown(scheme))
}

fn unknown(scheme: &str) -> Error {
    let compiled: Vec<_> =
        drivers().iter().flat_map(|driver| driver.schemes).map(|s| format!("{s}:")).collect();
    let compiled = if compiled.is_empty() { "none".into() } else { compiled.join(", ") };
    match FEATURES.iter().find(|(known, _)| *known == scheme) {
        Some((_, feature)) => {
            let needs = if *feature == "etcd" { ", which needs protoc" } else { "" };
            let text = format!(
                "{scheme}: is not in this build; the feature \"{feature}\" adds it{needs}: \
                 cargo add polylock --features {feature}, or for the command \
                 cargo install lock-cli --features {feature}. This build has: {compiled}"
            );
            Error::new(ErrorKind::Unsupported, text)
        }
        None => Error::invalid_input(format!(
            "no backend answers to the scheme {scheme}: This build has: {compiled}{}",
            addable()
        )),
    }
}

/// What features would add, for the end of an error's text.
fn addable() -> String {
    let compiled = |scheme: &str| drivers().iter().any(|driver| driver.schemes.contains(&scheme));
    let absent: Vec<_> = FEATURES
        .iter()
        .filter(|(scheme, _)| !compiled(scheme))
        .map(|(scheme, feature)| format!("{scheme}: (feature \"{feature}\")"))
        .collect();
    if absent.is_empty() { String::new() } else { format!("; could be added: {}", absent.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(url: &str) -> String {
        of(&Url::parse(url).unwrap()).unwrap_err().to_string()
    }

    #[test]
    fn every_compiled_scheme_finds_its_driver_and_names_its_feature() {
        for driver in drivers() {
            for scheme in driver.schemes {
                let url = Url::parse(&format!("{scheme}:")).unwrap();
                assert_eq!(of(&url).unwrap().name, driver.name);
                assert!(FEATURES.contains(&(scheme, driver.name)), "{scheme} is missing from FEATURES");
            }
        }
        for (_, feature) in FEATURES {
            let toml = include_str!("../Cargo.toml");
            assert!(toml.contains(&format!("\n{feature} = [")), "{feature} is no feature of polylock");
        }
    }

    #[test]
    fn every_driver_of_this_build_has_an_example_that_leads_to_it() {
        for driver in drivers() {
            assert_eq!(of(&Url::parse(driver.example).unwrap()).unwrap().name, driver.name);
        }
    }

    #[test]
    fn an_unknown_scheme_is_answered_with_the_schemes_there_are() {
        let text = text("carrier-pigeon://coop");
        assert!(text.contains("carrier-pigeon:"), "{text}");
        for driver in drivers() {
            assert!(text.contains(driver.schemes[0]), "{text}");
        }
        for (scheme, _) in FEATURES {
            assert!(text.contains(&format!("{scheme}:")), "{text}");
        }
    }

    #[cfg(not(feature = "redis"))]
    #[test]
    fn a_scheme_that_was_not_compiled_names_the_feature_that_adds_it() {
        let text = text("rediss://me:s3cr3t@host");
        assert!(text.contains("feature \"redis\""), "{text}");
        assert!(!text.contains("s3cr3t"), "{text}");
    }

    #[cfg(not(any(
        feature = "etcd",
        feature = "file",
        feature = "memory",
        feature = "mysql",
        feature = "redis",
        feature = "zookeeper"
    )))]
    #[test]
    fn a_build_without_backends_says_so() {
        assert!(text("file:///tmp").ends_with("This build has: none"));
    }
}
