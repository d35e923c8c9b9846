//! What a user of polylock compiles, and no more.

use std::{collections::BTreeSet, process::Command};

fn cargo(arguments: &[&str]) -> String {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    let output =
        command.current_dir(env!("CARGO_MANIFEST_DIR")).args(arguments).output().expect("cargo starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("cargo writes UTF-8")
}

/// The packages that `cargo tree` lists, by name.
fn tree(arguments: &[&str]) -> BTreeSet<String> {
    let list = ["tree", "--edges", "normal", "--prefix", "none", "--format", "{p}"];
    let text = cargo(&[&list, arguments].concat());
    text.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

#[test]
fn lock_core_depends_on_tokio_and_little_else() {
    let mut direct = tree(&["--package", "lock-core", "--depth", "1"]);
    direct.remove("lock-core");
    let justified = [
        // `Backend` is used as a trait object; its async methods need boxing.
        "async-trait",
        // Owners are 128 random bits from the operating system.
        "getrandom",
        // Durations in URLs and in error texts.
        "humantime",
        // URL options.
        "percent-encoding",
        // The clock that counts suspend, and its timer, without `unsafe`.
        "rustix",
        "tokio",
        // `CancellationToken` is part of the guard's API.
        "tokio-util",
        "tracing",
    ];
    assert_eq!(direct, justified.map(str::to_owned).into());
}

#[test]
fn the_default_features_bring_no_client_library_and_no_tls() {
    let all = tree(&["--package", "polylock"]);
    assert!(all.contains("lock-file"), "{all:?}");
    let clients =
        ["lock-redis", "redis", "rustls", "tokio-rustls", "ring", "aws-lc-rs", "native-tls", "openssl"];
    for unwanted in clients {
        assert!(!all.contains(unwanted), "{unwanted} came with the default features");
    }
}

#[test]
fn the_command_builds_without_the_slow_drivers_and_without_protoc() {
    let all = tree(&["--package", "lock-cli", "--edges", "normal,build"]);
    assert!(all.contains("lock-redis"), "{all:?}");
    for unwanted in ["etcd-client", "prost-build", "zookeeper-client", "sqlx", "lock-bench"] {
        assert!(!all.contains(unwanted), "{unwanted} came with the default features");
    }
}

#[test]
fn without_features_there_is_only_the_core() {
    let all = tree(&["--package", "polylock", "--no-default-features"]);
    let ours: Vec<_> = all.iter().filter(|name| name.starts_with("lock-")).collect();
    assert_eq!(ours, ["lock-core"]);
}

#[test]
fn no_crate_but_a_backends_own_names_its_client_library() {
    let libraries = [
        ("lock-redis", "redis"),
        ("lock-file", "notify"),
        ("lock-etcd", "etcd-client"),
        ("lock-zookeeper", "zookeeper-client"),
        ("lock-mysql", "sqlx"),
    ];
    for (backend, library) in libraries {
        let backends = libraries.map(|(backend, _)| backend);
        for package in ["polylock", "lock-core", "lock-cli"].into_iter().chain(backends) {
            let direct = tree(&["--package", package, "--depth", "1", "--all-features"]);
            assert_eq!(direct.contains(library), package == backend, "{package} and {library}");
        }
    }
}

#[test]
fn no_dependency_needs_a_newer_rust_than_we_say() {
    let version = |text: &str| {
        let mut parts = text.split('.').map(|part| part.parse::<u32>().unwrap());
        [(); 3].map(|()| parts.next().unwrap_or(0))
    };
    let metadata = cargo(&["metadata", "--format-version", "1"]);
    let declared = metadata.split("\"rust_version\":\"").skip(1).filter_map(|rest| rest.split('"').next());
    let newest = declared.max_by_key(|text| version(text)).unwrap();
    assert!(version(newest) <= version(env!("CARGO_PKG_RUST_VERSION")), "a dependency needs Rust {newest}");
}
