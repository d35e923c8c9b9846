//! What lies in the directory: whose it is, and what does not belong there.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

mod support;

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    time::Duration,
};

use lock_core::{Backend, Error, ErrorKind, Fault, Name, Promise, Released, Renewal, Url};
use lock_file::{DRIVER, FileBackend, FileOptions};
use support::*;

async fn refused(path: impl Into<std::path::PathBuf>) -> Error {
    FileBackend::connect(FileOptions::new(path)).await.unwrap_err()
}

#[tokio::test]
async fn everything_is_made_for_this_user_alone() {
    let locks = Locks::new();
    let deep = locks.path().join("a/b");
    let backend = connect(&deep).await;
    held(&backend, &claim("x", LONG)).await;
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().mode() & 0o777;
    for directory in [&locks.path(), &deep, &deep.join(".alive")] {
        assert_eq!(mode(directory), 0o700, "{directory:?}");
    }
    assert_eq!(mode(&deep.join("x.lock")), 0o600);
}

#[tokio::test]
async fn a_directory_that_others_can_change_is_refused() {
    let locks = Locks::new();
    fs::create_dir(locks.path()).unwrap();
    for mode in [0o777, 0o770, 0o702] {
        fs::set_permissions(locks.path(), fs::Permissions::from_mode(mode)).unwrap();
        let error = refused(locks.path()).await;
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains("chmod go-w"), "{error}");
    }
    fs::set_permissions(locks.path(), fs::Permissions::from_mode(0o755)).unwrap();
    locks.connect().await;
}

#[tokio::test]
async fn a_path_that_is_no_directory_of_ones_own_is_refused() {
    let locks = Locks::new();
    locks.connect().await;
    let link = locks.path().with_file_name("link");
    symlink(locks.path(), &link).unwrap();
    let file = locks.path().with_file_name("file");
    fs::write(&file, "").unwrap();
    for path in [link.clone(), link.join(""), file, "relative".into()] {
        let error = refused(&path).await;
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{path:?}: {error}");
    }
}

#[tokio::test]
async fn what_is_not_a_state_file_is_an_error_and_left_alone() {
    let locks = Locks::new();
    let backend = locks.connect().await;
    let elsewhere = locks.path().with_file_name("elsewhere");
    fs::write(&elsewhere, "precious").unwrap();
    symlink(&elsewhere, locks.state_file("link")).unwrap();
    symlink(locks.path().with_file_name("nowhere"), locks.state_file("dangling")).unwrap();
    fs::create_dir(locks.state_file("directory")).unwrap();
    fs::write(locks.state_file("text"), "precious").unwrap();
    fs::write(locks.state_file("big"), vec![b'x'; 20_000]).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, locks.state_file("pipe"), rustix::fs::Mode::RWXU).unwrap();
    for name in ["link", "dangling", "directory", "text", "big", "pipe"] {
        let claim = claim(name, LONG);
        let kinds = [
            backend.acquire(&claim).await.unwrap_err().kind(),
            backend.renew(&claim).await.unwrap_err().kind(),
            backend.release(&claim).await.unwrap_err().kind(),
        ];
        assert_eq!(kinds, [ErrorKind::Foreign; 3], "{name}");
    }
    assert_eq!(fs::read(elsewhere).unwrap(), b"precious");
    assert_eq!(fs::read(locks.state_file("text")).unwrap(), b"precious");
    assert!(!locks.path().with_file_name("nowhere").exists());
}

#[tokio::test]
async fn a_damaged_state_is_an_error_even_after_its_lease() {
    let locks = Locks::new();
    let (backend, short) = (locks.connect().await, claim("x", Duration::from_millis(1)));
    held(&backend, &short).await;
    let mut bytes = fs::read(locks.state_file("x")).unwrap();
    bytes[4096 + 40] ^= 1;
    fs::write(locks.state_file("x"), bytes).unwrap();
    let error = backend.acquire(&claim("x", LONG)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Foreign, "{error}");
    assert!(!error.is_transient());
}

#[tokio::test]
async fn the_state_of_one_name_is_not_taken_for_anothers() {
    let locks = Locks::new();
    let backend = locks.connect().await;
    held(&backend, &claim("x", LONG)).await;
    fs::copy(locks.state_file("x"), locks.state_file("y")).unwrap();
    let error = backend.acquire(&claim("y", LONG)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Foreign);
    assert!(error.to_string().contains("\"x\""), "{error}");
}

#[tokio::test]
async fn renew_and_release_create_no_files() {
    let locks = Locks::new();
    let (backend, claim) = (locks.connect().await, claim("x", LONG));
    assert_eq!(backend.renew(&claim).await.unwrap(), Renewal::Lost);
    assert_eq!(backend.release(&claim).await.unwrap(), Released::Absent);
    assert!(!locks.state_file("x").exists());
}

#[tokio::test]
async fn the_driver_connects_and_prints_the_state_file() {
    let locks = Locks::new();
    let url = Url::parse(&format!("file://{}", locks.path().display())).unwrap();
    let name = Name::new("a/b").unwrap();
    let key = (DRIVER.key)(&url, &name).unwrap();
    let backend = (DRIVER.connect)(url).await.unwrap();
    let claim = claim("a/b", LONG);
    backend.acquire(&claim).await.unwrap();
    let text = fs::read_to_string(key).unwrap();
    assert!(text.contains("\"name\":\"a/b\"") && text.contains(&claim.owner.to_hex()), "{text}");
}

#[tokio::test]
async fn tokens_that_a_reboot_starts_again_are_not_promised_through_it() {
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let backend = connect(&memory.path().join("locks")).await;
    let promise = Promise::Fencing(Fault::ServerRestart);
    assert!(!backend.guarantees().meets(promise));
    assert!(!(DRIVER.guarantees)().meets(promise));
    assert!(backend.guarantees().meets(Promise::Fencing(Fault::HolderCrash)));
}
