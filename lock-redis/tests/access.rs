//! Who may connect, over what, and what of it can be seen.
// Helpers are part of the tests, but the lint does not know that.
#![allow(clippy::unwrap_used)]

mod support;

use std::{
    collections::{BTreeSet, HashMap},
    process::{Command, Stdio},
};

use lock_conformance::logs::Log;
use lock_core::{Backend, ErrorKind, Fault, Released, Renewal, Url, Wakeup};
use lock_redis::{DRIVER, RedisBackend, RedisOptions};
use redis::{FromRedisValue, Value};
use support::{Server, ask, busy, claim, connect, free_port, held, until_answered};

/// What the README tells operators to allow.
const LEAST: &str = "ACL SETUSER locks on >s3cr3t resetkeys ~polylock:* resetchannels &polylock:* \
                     -@all +get +set +del +pttl +pexpire +time +lindex +lrange +lrem +lset +rpush \
                     +evalsha +eval +publish +subscribe +unsubscribe";

#[tokio::test]
async fn the_documented_user_can_do_all_that_locks_need() {
    let readme = include_str!("../README.md").split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(readme.contains(&LEAST.replace("s3cr3t", "password")), "the README names other rights");
    let server = Server::start(&[]);
    server.ask::<()>(LEAST);
    let backend = RedisBackend::connect(server.options().user("locks").password("s3cr3t")).await.unwrap();
    assert_eq!(backend.guarantees().wakeup, Wakeup::Push);
    let (holder, waiter) = (claim("a"), claim("a"));
    server.ask::<()>("SCRIPT FLUSH");
    held(&backend, &holder).await;
    assert!(matches!(backend.renew(&holder).await.unwrap(), Renewal::Kept(_)));
    let told = busy(&backend, &waiter).await;
    assert_eq!(backend.release(&holder).await.unwrap(), Released::Released);
    let grant = told.wake.expect("a wake").await.expect("a grant");
    assert_eq!(held(&backend, &waiter).await.token, grant.token);
    busy(&backend, &holder).await;
    busy(&backend, &holder).await;
    assert_eq!(backend.release(&holder).await.unwrap(), Released::Released);
    let log: Vec<HashMap<String, Value>> = server.ask("ACL LOG");
    let refused: BTreeSet<String> =
        log.iter().map(|entry| String::from_redis_value_ref(&entry["object"]).unwrap()).collect();
    assert_eq!(
        refused,
        BTreeSet::from(["config|get".into(), "info".into()]),
        "nothing else was asked in vain"
    );
}

#[tokio::test]
async fn what_the_server_does_not_tell_is_not_promised() {
    let server = Server::start(&["--appendonly", "yes", "--appendfsync", "always"]);
    server.ask::<()>(LEAST);
    let told = server.backend().await.guarantees();
    assert!(told.exclusion.contains(Fault::ServerRestart) && told.exclusion.contains(Fault::Eviction));
    let options = server.options().user("locks").password("s3cr3t");
    let untold = RedisBackend::connect(options).await.unwrap().guarantees();
    assert!(!untold.exclusion.contains(Fault::ServerRestart) && !untold.exclusion.contains(Fault::Eviction));
    assert_eq!(untold.exclusion, (DRIVER.guarantees)().exclusion);
}

#[tokio::test]
async fn only_a_configuration_that_keeps_a_promise_makes_it() {
    let server = Server::start(&["--maxmemory-policy", "allkeys-lru"]);
    let promises = |server: &Server| {
        let options = server.options();
        async move { RedisBackend::connect(options).await.unwrap().guarantees().exclusion }
    };
    let exclusion = promises(&server).await;
    assert!(!exclusion.contains(Fault::Eviction) && !exclusion.contains(Fault::ServerRestart));
    server.ask::<()>("CONFIG SET maxmemory-policy noeviction");
    assert!(promises(&server).await.contains(Fault::Eviction));
    server.ask::<()>("CONFIG SET appendonly yes");
    // Writes may be put off while a sync is under way.
    server.ask::<()>("CONFIG SET appendfsync everysec");
    assert!(!promises(&server).await.contains(Fault::ServerRestart));
    server.ask::<()>("CONFIG SET appendfsync always");
    let exclusion = promises(&server).await;
    assert!(exclusion.contains(Fault::ServerRestart));
    for never in [Fault::Failover, Fault::ServerClockStep, Fault::DataLoss] {
        assert!(!exclusion.contains(never), "{never}");
    }
}

#[tokio::test]
async fn a_missing_right_is_denied_for_good() {
    let server = Server::start(&[]);
    server.ask::<()>(LEAST);
    for taken in ["-set", "-evalsha", "resetkeys ~other:*"] {
        server.ask::<()>(&format!("ACL SETUSER locks {taken}"));
        let backend = RedisBackend::connect(server.options().user("locks").password("s3cr3t")).await.unwrap();
        let error = backend.acquire(&claim("a")).await.unwrap_err();
        assert_eq!((error.kind(), error.is_transient()), (ErrorKind::Denied, false), "{taken}: {error}");
        server.ask::<()>(LEAST);
    }
}

#[tokio::test]
async fn a_wrong_password_is_denied_at_once_and_for_good() {
    let server = Server::start(&["--requirepass", "right"]);
    let at = format!("127.0.0.1:{}", server.port);
    for url in [
        format!("redis://{at}"),
        format!("redis://:wrong@{at}"),
        format!("redis://nobody:right@{at}"),
        format!("redis://:wrong@{at}?protocol=resp2"),
        format!("redis://{at}?protocol=resp2"),
    ] {
        let error = connect(&url).await.map(drop).unwrap_err();
        assert_eq!((error.kind(), error.is_transient()), (ErrorKind::Denied, false), "{url}: {error}");
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "right\n").unwrap();
    connect(&format!("redis://{at}?password_file={}", file.path().display())).await.unwrap();
}

#[tokio::test]
async fn a_password_that_was_changed_is_denied_on_the_next_connection() {
    let server = Server::start(&[]);
    server.ask::<()>(LEAST);
    let backend = RedisBackend::connect(server.options().user("locks").password("s3cr3t")).await.unwrap();
    let ours = claim("a");
    held(&backend, &ours).await;
    server.ask::<()>("ACL SETUSER locks resetpass >other");
    server.ask::<i64>("CLIENT KILL USER locks");
    let refused = loop {
        match backend.renew(&ours).await.unwrap_err() {
            broken if broken.is_transient() => {}
            refused => break refused,
        }
    };
    assert_eq!(refused.kind(), ErrorKind::Denied, "{refused}");
    server.ask::<()>("ACL SETUSER locks resetpass >s3cr3t");
    assert!(matches!(until_answered(|| backend.renew(&ours)).await, Renewal::Kept(_)));
}

#[tokio::test]
async fn database_and_prefix_are_as_the_url_says() {
    let server = Server::start(&[]);
    let url = format!("{}/3?prefix=app%3A", server.url());
    let backend = connect(&url).await.unwrap();
    held(&backend, &claim("a")).await;
    let mut admin = server.admin();
    ask::<()>(&mut admin, "SELECT 3");
    assert_eq!(ask::<i64>(&mut admin, "EXISTS app:{a} app:{a}:fence"), 2);
    let key = (DRIVER.key)(&Url::parse(&url).unwrap(), &support::name("x{y}")).unwrap();
    assert_eq!(key, "app:{x%7By%7D}");
    let error = connect(&format!("{}/99", server.url())).await.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
}

#[tokio::test]
async fn what_is_no_single_primary_is_refused() {
    let cluster = Server::start_with(|_| {
        let bus = free_port().to_string();
        ["--cluster-enabled", "yes", "--cluster-port", &bus].map(str::to_owned).into()
    });
    let error = connect(&cluster.url()).await.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("Cluster"), "{error}");
    let replica = Server::start(&["--replicaof", "127.0.0.1", &free_port().to_string()]);
    let error = connect(&replica.url()).await.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("replica"), "{error}");
}

/// A server that speaks TLS only, with a certificate made here; the certificate's file.
fn tls_server() -> (Server, String) {
    let folder = tempfile::tempdir().unwrap().keep();
    let file = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let (key, certificate) = (file("key.pem"), file("cert.pem"));
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"])
        .args(["-keyout", &key, "-out", &certificate, "-days", "2", "-subj", "/CN=localhost"])
        .args(["-addext", "subjectAltName=DNS:localhost", "-addext", "basicConstraints=critical,CA:FALSE"])
        .stderr(Stdio::null())
        .status()
        .expect("openssl must be installed (Debian: apt-get install openssl)");
    assert!(made.success());
    let server = Server::start_with(|port| {
        let port = port.to_string();
        let listens = ["--port", "0", "--tls-port", &port, "--tls-auth-clients", "no"];
        let shows = ["--tls-cert-file", &certificate, "--tls-key-file", &key];
        listens.iter().chain(&shows).map(ToString::to_string).collect()
    });
    (server, certificate)
}

#[tokio::test]
async fn tls_is_verified_against_the_given_roots() {
    let (server, certificate) = tls_server();
    let at = |host: &str| format!("rediss://{host}:{}", server.port);
    let backend = connect(&format!("{}?ca={certificate}", at("localhost"))).await.unwrap();
    assert_eq!(backend.guarantees().wakeup, Wakeup::Push);
    let ours = claim("a");
    held(&backend, &ours).await;
    assert_eq!(backend.release(&ours).await.unwrap(), Released::Released);
    for untrusted in [at("localhost"), format!("{}?ca={certificate}", at("127.0.0.1"))] {
        let error = connect(&untrusted).await.map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{untrusted}: {error:?}");
    }
    let error = connect(&format!("{}?ca=/nowhere.pem", at("localhost"))).await.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
}

#[tokio::test]
async fn no_secret_is_shown_by_debug_errors_or_logs() {
    let (log, _logging) = Log::start();

    let server = Server::start(&[]);
    server.ask::<()>(LEAST);
    // Repeats commands that it does not know, with their arguments.
    let old = Server::start(&["--rename-command", "HELLO", "", "--rename-command", "AUTH", ""]);
    let mut shown = String::new();
    for (user, port) in
        [("locks", server.port), ("other", server.port), ("locks", free_port()), ("locks", old.port)]
    {
        let options = RedisOptions::new("127.0.0.1").port(port).user(user).password("s3cr3t");
        shown += &format!("{options:?}");
        match RedisBackend::connect(options).await {
            Ok(backend) => {
                shown += &format!("{backend:?}");
                let ours = claim("a");
                shown += &format!("{:?}", backend.acquire(&ours).await);
                server.ask::<()>("ACL SETUSER locks -@all");
                shown += &format!("{:?}", backend.renew(&ours).await);
            }
            Err(error) => {
                let mut cause: Option<&dyn std::error::Error> = Some(&error);
                while let Some(error) = cause {
                    shown += &format!("{error} {error:?}\n");
                    cause = error.source();
                }
            }
        }
        let url = format!("redis://{user}:s3cr3t@127.0.0.1:{port}");
        shown += &format!("{:?}", connect(&url).await.map(drop));
    }
    let log = log.text();
    assert!(log.contains("connected to redis"), "{log}");
    assert!(!log.contains("s3cr3t"), "{log}");
    assert!(shown.contains("WRONGPASS") && !shown.contains("s3cr3t"), "{shown}");
}
