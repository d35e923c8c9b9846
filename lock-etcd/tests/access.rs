//! Who may connect, over what, and what of it can be seen.
// Helpers are part of the tests, but the lint does not know that.
#![allow(clippy::unwrap_used)]

mod support;

use std::{
    path::Path,
    pin::pin,
    process::Command,
    task::{Context, Waker},
    time::{Duration, Instant},
};

use etcd_client::{Client, ConnectOptions};
use lock_conformance::logs::Log;
use lock_core::{Backend, ErrorKind, Released, Renewal};
use lock_etcd::{EtcdBackend, EtcdOptions};
use support::{PATIENCE, Server, busy, claim, claim_for, connect, held, keys, scratch, soon, until_answered};
use tokio::time::timeout;

fn openssl(folder: &Path, words: &str) {
    let output = Command::new("openssl").current_dir(folder).args(words.split(' ')).output();
    let output = output.expect("openssl must be installed");
    assert!(output.status.success(), "{words}: {output:?}");
}

/// What the README tells operators to allow, with authentication switched on.
fn protect(server: &Server) {
    let readme = include_str!("../README.md");
    for line in [
        "user add root:r00t",
        "user grant-role root root",
        "user add locks:s3cr3t",
        "role add locks",
        "role grant-permission locks --prefix=true readwrite polylock/",
        "user grant-role locks locks",
        "auth enable",
    ] {
        assert!(
            line.contains("root")
                || !line.contains("locks")
                || line.contains("s3cr3t")
                || readme.contains(&format!("etcdctl {line}")),
            "the README does not say: {line}"
        );
        server.control(&line.split(' ').collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn the_documented_user_can_do_all_that_locks_need() {
    let server = Server::start(&[]);
    protect(&server);
    let url = format!("etcd://locks:s3cr3t@{}", server.address());
    let (backend, other) = (connect(&url).await.unwrap(), connect(&url).await.unwrap());
    let (holder, waiter) = (claim("a"), claim("a"));
    held(&backend, &holder).await;
    assert!(matches!(backend.renew(&holder).await.unwrap(), Renewal::Kept(_)));
    busy(&backend, &claim("a").queued(false)).await;
    let told = busy(&other, &waiter).await;
    assert_eq!(backend.release(&holder).await.unwrap(), Released::Released);
    soon("the wake", told.wake.expect("a wake")).await;
    held(&other, &waiter).await;
    assert_eq!(backend.release(&waiter).await.unwrap(), Released::Released);
}

#[tokio::test]
async fn what_is_not_allowed_is_denied_for_good() {
    let server = Server::start(&[]);
    protect(&server);
    let at = server.address();
    for url in [
        format!("etcd://locks:wrong@{at}"),
        format!("etcd://nobody:s3cr3t@{at}"),
        format!("etcd://{at}"),
        format!("etcd://locks:s3cr3t@{at}/elsewhere"),
    ] {
        let error = connect(&url).await.map(drop).unwrap_err();
        assert_eq!((error.kind(), error.is_transient()), (ErrorKind::Denied, false), "{url}: {error}");
        assert!(!format!("{error:?}").contains("s3cr3t"), "{error:?}");
    }
    let open = Server::start(&[]);
    let error = connect(&format!("etcd://me:s3cr3t@{}", open.address())).await.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
}

/// The claim's key is made, and nobody who knows the new password is there to take it back. Core releases it: a
/// refusal would be the word that there is nothing to release.
#[tokio::test]
async fn a_password_that_was_changed_within_an_acquire_hides_no_key() {
    let server = Server::start(&[]);
    protect(&server);
    let url = format!("etcd://locks:s3cr3t@{}?connect_timeout=30s", server.address());
    let backend = connect(&url).await.unwrap();
    let (holder, warm) = (claim("a"), claim("b"));
    held(&backend, &holder).await;
    // Its lease serves the next claim, whose first request is then the one that makes the key.
    held(&backend, &warm).await;
    backend.release(&warm).await.unwrap();
    let ours = claim("a").fresh(true);
    let mut asking = pin!(backend.acquire(&ours));
    assert!(asking.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let options = ConnectOptions::new().with_user("root", "r00t");
    let mut admin = Client::connect([server.address()], Some(options)).await.unwrap();
    let since = Instant::now();
    while keys(&mut admin).await.len() < 2 {
        assert!(since.elapsed() < PATIENCE, "no key was made");
    }
    admin.user_change_password("locks", "other").await.unwrap();
    // A request that is not answered in time ends the connection; the next one logs in anew.
    server.pause();
    let silent = timeout(Duration::from_millis(100), backend.renew(&holder)).await;
    assert!(silent.is_err(), "{silent:?} from a server that is stopped");
    server.resume();
    let error = asking.await.unwrap_err();
    assert_eq!((error.kind(), error.is_transient()), (ErrorKind::Unavailable, true), "{error}");
    let error = backend.acquire(&ours.clone().fresh(false)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    admin.user_change_password("locks", "s3cr3t").await.unwrap();
    assert_eq!(until_answered(|| backend.release(&ours)).await, Released::Released);
    assert_eq!(keys(&mut admin).await.len(), 1);
}

/// Tokens live for two seconds; verbs and watches go on.
#[tokio::test]
async fn a_token_that_ran_out_is_renewed() {
    let keys = scratch();
    openssl(keys.path(), "genrsa -out key.pem 2048");
    openssl(keys.path(), "rsa -in key.pem -pubout -out pub.pem");
    let path = |name: &str| keys.path().join(name).display().to_string();
    let tokens =
        format!("jwt,pub-key={},priv-key={},sign-method=RS256,ttl=2s", path("pub.pem"), path("key.pem"));
    let server = Server::start(&["--auth-token", &tokens]);
    protect(&server);
    let url = format!("etcd://locks:s3cr3t@{}", server.address());
    let (backend, other) = (connect(&url).await.unwrap(), connect(&url).await.unwrap());
    for _ in 0..2 {
        let (holder, waiter) = (claim("a"), claim_for("a", Duration::from_secs(60)));
        held(&backend, &holder).await;
        tokio::time::sleep(Duration::from_millis(2_500)).await;
        assert!(matches!(backend.renew(&holder).await.unwrap(), Renewal::Kept(_)));
        let told = busy(&other, &waiter).await;
        tokio::time::sleep(Duration::from_millis(2_500)).await;
        assert_eq!(backend.release(&holder).await.unwrap(), Released::Released);
        if let Some(wake) = told.wake {
            soon("the wake", wake).await;
        }
        held(&other, &waiter).await;
        assert_eq!(other.release(&waiter).await.unwrap(), Released::Released);
    }
}

#[tokio::test]
async fn over_tls_both_sides_show_a_certificate() {
    let folder = scratch();
    let path = folder.path();
    openssl(path, "req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=ca -keyout ca.key -out ca.pem");
    std::fs::write(path.join("san"), "subjectAltName=IP:127.0.0.1,DNS:localhost\n").unwrap();
    for name in ["server", "client"] {
        openssl(
            path,
            &format!("req -newkey rsa:2048 -nodes -subj /CN={name} -keyout {name}.key -out {name}.csr"),
        );
        openssl(
            path,
            &format!(
                "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 1 -extfile san -out {name}.pem"
            ),
        );
    }
    let file = |name: &str| path.join(name).display().to_string();
    let server = Server::start(&[
        "--cert-file",
        &file("server.pem"),
        "--key-file",
        &file("server.key"),
        "--client-cert-auth",
        "--trusted-ca-file",
        &file("ca.pem"),
    ]);
    let options = EtcdOptions::new([server.address()]).unwrap();
    let backend = EtcdBackend::connect(
        options
            .clone()
            .root_certificates(file("ca.pem"))
            .client_certificate(file("client.pem"), file("client.key")),
    )
    .await
    .unwrap();
    let ours = claim("a");
    held(&backend, &ours).await;
    assert_eq!(backend.release(&ours).await.unwrap(), Released::Released);

    // The system does not know that root.
    let untrusted = EtcdBackend::connect(options.clone().tls()).await.unwrap_err();
    assert_eq!(untrusted.kind(), ErrorKind::Denied, "{untrusted}");
    let unknown = EtcdBackend::connect(options.root_certificates(file("ca.pem"))).await;
    assert!(unknown.is_err(), "a client without a certificate was let in");
}

#[tokio::test]
async fn no_secret_is_shown_by_debug_errors_or_logs() {
    let (log, _logging) = Log::start();
    let server = Server::start(&[]);
    protect(&server);
    let mut shown = String::new();
    let options = |password: &str| {
        let options = EtcdOptions::new([server.address()]).unwrap().connect_timeout(PATIENCE);
        options.user("locks").password(password)
    };
    let backend = EtcdBackend::connect(options("s3cr3t")).await.unwrap();
    shown += &format!("{:?} {backend:?}", options("s3cr3t"));
    let (ours, waiter) = (claim("a"), claim("a"));
    shown += &format!("{:?}", backend.acquire(&ours).await.unwrap());
    shown += &format!("{:?}", backend.acquire(&waiter).await.unwrap());
    shown += &format!("{:?}", backend.renew(&ours).await.unwrap());
    shown += &format!("{:?}", backend.release(&ours).await.unwrap());
    shown += &format!("{:?}", backend.release(&waiter).await.unwrap());
    for error in [
        EtcdBackend::connect(options("wrong-s3cr3t")).await.map(drop).unwrap_err(),
        connect(&format!("etcd://locks:wrong-s3cr3t@{}?connect_timeout=30s", server.address()))
            .await
            .map(drop)
            .unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        let mut cause: Option<&dyn std::error::Error> = Some(&error);
        while let Some(error) = cause {
            shown += &format!("{error} {error:?}");
            cause = error.source();
        }
    }
    let log = log.text();
    assert!(log.contains("this member of etcd is asked now"), "{log}");
    // The crates below log too, and the first of these is how the protocol's own buffers are shown.
    assert!(log.contains("TRACE"), "{log}");
    for secret in ["s3cr3t", "115, 51, 99, 114, 51, 116"] {
        assert!(!log.contains(secret), "{log}");
        assert!(!shown.contains(secret), "{shown}");
    }
}

/// The documented user may ask; nobody is told again when another member, or the same one, is asked from then on.
#[tokio::test]
async fn the_version_of_the_server_is_read_and_an_old_one_warned_of_once() {
    let server = Server::start(&[]);
    let version = server.admin().await.status().await.unwrap().version().to_owned();
    protect(&server);
    let (log, _logging) = Log::start();
    let url = format!("etcd://locks:s3cr3t@{}?connect_timeout=30s", server.address());
    let backend = connect(&url).await.unwrap();
    let count = |words: &str| {
        let text = log.text();
        text.lines().filter(|line| line.contains(words) && line.contains(&format!("{version:?}"))).count()
    };
    assert_eq!(count("the version of this member"), 1, "{}", log.text());
    // Debian 12 has 3.4.23.
    let old = [("3.4", 42), ("3.5", 28), ("3.6", 9)].iter().any(|(line, sound)| {
        version
            .rsplit_once('.')
            .is_some_and(|(of, patch)| of == *line && patch.parse::<u32>().unwrap() < *sound)
    });
    assert_eq!(count("this etcd can end a lease too soon"), usize::from(old), "{}", log.text());
    let nobody = claim("a");
    server.pause();
    assert!(timeout(Duration::from_millis(100), backend.renew(&nobody)).await.is_err());
    server.resume();
    assert_eq!(until_answered(|| backend.renew(&nobody)).await, Renewal::Lost);
    let dials = log.text().matches("this member of etcd is asked now").count();
    assert!(dials > 1, "{}", log.text());
    assert_eq!(count("this etcd can end a lease too soon"), usize::from(old), "{}", log.text());
}
