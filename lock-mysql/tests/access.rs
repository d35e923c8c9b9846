//! Who may connect, over what, and what of it can be seen.
// Helpers are part of the tests, but the lint does not know that.
#![allow(clippy::unwrap_used)]

mod support;

use std::{
    error::Error,
    fmt::{self, Write},
    process::{Command, Stdio},
    sync::{Arc, Mutex},
};

use lock_core::{Backend, ErrorKind, Fault, Locks, Released, Renewal, Wakeup};
use lock_mysql::{DRIVER, MysqlBackend, MysqlOptions};
use support::{Kind, Server, busy, claim, connect, held};
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};

/// What the README tells operators to grant.
const LEAST: &str = "GRANT SELECT, INSERT, UPDATE ON app.polylock TO 'locks'@'%'; \
                     GRANT SELECT, INSERT, UPDATE, DELETE ON app.polylock_queue TO 'locks'@'%';";

/// A server whose user `locks` may do this much and no more.
fn restricted(kind: Kind, grants: &str) -> Server {
    let server = Server::start(kind, &[]);
    server.sql(&server.options().migration());
    server.sql("REVOKE ALL PRIVILEGES, GRANT OPTION FROM 'locks'@'127.0.0.1'");
    server.sql(&grants.replace('%', "127.0.0.1"));
    server
}

on_both!(the_documented_user_can_do_all_that_locks_need);
async fn the_documented_user_can_do_all_that_locks_need(kind: Kind) {
    let readme = include_str!("../README.md").split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(readme.contains(LEAST), "the README names other rights");
    let server = restricted(kind, LEAST);
    let (backend, other) = (server.backend().await, server.backend().await);
    assert_eq!(backend.guarantees().wakeup, Wakeup::Push);
    let (holder, waiter) = (claim("a"), claim("a"));
    held(&backend, &holder).await;
    assert!(matches!(backend.renew(&holder).await.unwrap(), Renewal::Kept(_)));
    let told = busy(&other, &waiter).await;
    assert_eq!(backend.release(&holder).await.unwrap(), Released::Released);
    let handed = told.wake.expect("a wake").await.expect("the lock");
    assert_eq!(held(&other, &waiter).await.token, handed.token);
    assert_eq!(other.release(&waiter).await.unwrap(), Released::Released);
}

on_both!(a_user_who_may_not_make_the_tables_is_told_how_to);
async fn a_user_who_may_not_make_the_tables_is_told_how_to(kind: Kind) {
    let server = Server::start(kind, &[]);
    server.sql("REVOKE ALL PRIVILEGES, GRANT OPTION FROM 'locks'@'127.0.0.1'");
    server.sql("CREATE TABLE other (x INT); GRANT SELECT ON app.other TO 'locks'@'127.0.0.1'");
    let error = MysqlBackend::connect(server.options()).await.unwrap_err();
    assert_eq!((error.kind(), error.is_transient()), (ErrorKind::Denied, false), "{error}");
    assert!(error.to_string().contains(&server.options().migration()), "{error}");
    // What was told is enough.
    server.sql(&server.options().migration());
    server.sql(&LEAST.replace('%', "127.0.0.1"));
    held(&server.backend().await, &claim("a")).await;
}

on_both!(a_missing_right_is_denied_for_good);
async fn a_missing_right_is_denied_for_good(kind: Kind) {
    let server = restricted(kind, LEAST);
    let backend = server.backend().await;
    server.sql("REVOKE UPDATE ON app.polylock FROM 'locks'@'127.0.0.1'");
    let error = server.backend().await.acquire(&claim("a")).await.unwrap_err();
    assert_eq!((error.kind(), error.is_transient()), (ErrorKind::Denied, false), "{error}");
    let error = backend.release(&claim("a")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
}

on_both!(a_wrong_user_password_or_database_is_refused_at_once_and_for_good);
async fn a_wrong_user_password_or_database_is_refused_at_once_and_for_good(kind: Kind) {
    let server = Server::start(kind, &[]);
    let at = format!("127.0.0.1:{}", server.port);
    for (url, kind) in [
        (format!("mysql://locks@{at}/app"), ErrorKind::Denied),
        (format!("mysql://locks:wrong-s3cr3t@{at}/app"), ErrorKind::Denied),
        (format!("mysql://nobody:s3cr3t@{at}/app"), ErrorKind::Denied),
        (format!("mysql://locks:s3cr3t@{at}/mysql"), ErrorKind::Denied),
    ] {
        let error = connect(&url).await.map(drop).unwrap_err();
        assert_eq!((error.kind(), error.is_transient()), (kind, false), "{url}: {error:?}");
        assert!(!format!("{error} {error:?}").contains("s3cr3t"), "{error:?}");
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "s3cr3t\n").unwrap();
    connect(&format!("mysql://locks@{at}/app?password_file={}", file.path().display())).await.unwrap();
}

on_both!(a_table_that_is_not_ours_is_left_alone);
async fn a_table_that_is_not_ours_is_left_alone(kind: Kind) {
    let server = Server::start(kind, &[]);
    server.sql(
        "CREATE TABLE polylock (id INT) ENGINE=InnoDB; CREATE TABLE polylock_queue (id INT) ENGINE=InnoDB",
    );
    let backend = server.backend().await;
    let error = backend.acquire(&claim("a")).await.unwrap_err();
    assert_eq!((error.kind(), error.is_transient()), (ErrorKind::Foreign, false), "{error}");
    assert_eq!(server.sql("SELECT COUNT(*) FROM polylock").trim(), "0");
    server.sql("DROP TABLE polylock, polylock_queue; CREATE TABLE polylock (id INT) ENGINE=MyISAM");
    let error = MysqlBackend::connect(server.options()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    let other = server.options().table("locks_2").unwrap();
    held(&MysqlBackend::connect(other).await.unwrap(), &claim("a")).await;
    assert_eq!(server.sql("SELECT name FROM locks_2").trim(), "a");
}

on_both!(a_table_with_a_trigger_grants_no_lock_without_a_token);
async fn a_table_with_a_trigger_grants_no_lock_without_a_token(kind: Kind) {
    let server = Server::start(kind, &[]);
    let backend = server.backend().await;
    let ours = claim("a");
    let token = held(&backend, &ours).await.token;
    assert_eq!(backend.release(&ours).await.unwrap(), Released::Released);
    server.sql("CREATE TABLE audit (name VARBINARY(255))");
    server.sql(
        "CREATE TRIGGER audit BEFORE UPDATE ON polylock FOR EACH ROW INSERT INTO audit VALUES (NEW.name)",
    );
    let error = backend.acquire(&claim("a")).await.unwrap_err();
    assert_eq!((error.kind(), error.is_transient()), (ErrorKind::Foreign, false), "{error}");
    assert!(error.to_string().contains("trigger"), "{error}");
    server.sql("DROP TRIGGER audit; UPDATE polylock SET owner = NULL, deadline = '1970-01-01'");
    assert!(held(&backend, &claim("a")).await.token > token);
}

on_both!(only_a_configuration_that_keeps_a_promise_makes_it);
async fn only_a_configuration_that_keeps_a_promise_makes_it(kind: Kind) {
    let server = Server::start(kind, &[]);
    for (value, promised) in [(1, true), (2, true), (0, false)] {
        server.sql(&format!("SET GLOBAL innodb_flush_log_at_trx_commit = {value}"));
        let exclusion = server.backend().await.guarantees().exclusion;
        assert_eq!(exclusion.contains(Fault::ServerRestart), promised, "{value}");
        for never in [Fault::Failover, Fault::ServerClockStep, Fault::DataLoss] {
            assert!(!exclusion.contains(never), "{never}");
        }
    }
    assert!(!(DRIVER.guarantees)().exclusion.contains(Fault::ServerRestart));
}

on_both!(tls_is_verified_against_the_given_roots);
async fn tls_is_verified_against_the_given_roots(kind: Kind) {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (key, certificate) = (file("key.pem"), file("cert.pem"));
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"])
        .args(["-keyout", &key, "-out", &certificate])
        .args(["-addext", "subjectAltName=DNS:localhost", "-addext", "basicConstraints=critical,CA:FALSE"])
        .stderr(Stdio::null())
        .status()
        .expect("openssl must be installed (Debian: apt-get install openssl)");
    assert!(made.success());
    let server = Server::start(kind, &[&format!("--ssl-cert={certificate}"), &format!("--ssl-key={key}")]);
    server.sql("ALTER USER 'locks'@'127.0.0.1' REQUIRE SSL");
    let at = |host: &str, options: &str| format!("mysql://locks:s3cr3t@{host}:{}/app?{options}", server.port);

    let backend = connect(&at("localhost", &format!("ca={certificate}"))).await.unwrap();
    let (ours, waiter) = (claim("a"), claim("a"));
    held(&backend, &ours).await;
    let told = busy(&backend, &waiter).await;
    assert_eq!(backend.release(&ours).await.unwrap(), Released::Released);
    assert!(told.wake.expect("a wake").await.is_none());
    connect(&at("127.0.0.1", "tls=encrypt")).await.unwrap();
    for untrusted in [
        at("localhost", "tls=verify"),
        at("127.0.0.1", &format!("ca={certificate}")),
        // The server insists.
        at("localhost", ""),
    ] {
        let error = connect(&untrusted).await.map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{untrusted}: {error:?}");
    }
    let error = connect(&at("localhost", "ca=/nowhere.pem")).await.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");

    let plain = Server::start(kind, &[]);
    let error = connect(&format!("{}?tls=verify", plain.url())).await.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
}

/// Everything that was logged, at every level, by any crate.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<String>>);

impl Log {
    fn add(&self, text: &str) {
        writeln!(self.0.lock().unwrap(), "{text}").unwrap();
    }
}

impl Visit for &Log {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(&format!("{field}: {value:?}"));
    }
}

impl Subscriber for Log {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.add(span.metadata().name());
        span.record(&mut &*self);
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        values.record(&mut &*self);
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        self.add(event.metadata().target());
        event.record(&mut &*self);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

on_both!(no_password_is_shown_by_debug_errors_or_logs);
async fn no_password_is_shown_by_debug_errors_or_logs(kind: Kind) {
    let log = Log::default();
    let _default = tracing::subscriber::set_default(log.clone());

    let server = Server::start(kind, &[]);
    let mut shown = String::new();
    for (user, password) in [("locks", "s3cr3t"), ("locks", "wrong-s3cr3t"), ("nobody", "s3cr3t")] {
        let options = MysqlOptions::new("127.0.0.1", "app", user).port(server.port).password(password);
        shown += &format!("{options:?}\n");
        match MysqlBackend::connect(options).await {
            Ok(backend) => {
                shown += &format!("{backend:?}\n");
                let locks = Locks::new(backend).unwrap();
                let guard = locks.lock("a").unwrap().acquire().await.unwrap();
                assert!(locks.lock("a").unwrap().try_acquire().await.unwrap().is_none());
                shown += &format!("{guard:?}\n");
                shown += &format!("{:?}\n", guard.release().await);
                shown += &format!("{:?}\n", locks.statistics());
            }
            Err(error) => {
                let mut cause: Option<&dyn Error> = Some(&error);
                while let Some(error) = cause {
                    shown += &format!("{error} {error:?}\n");
                    cause = error.source();
                }
            }
        }
        let url = format!("mysql://{user}:{password}@127.0.0.1:{}/app", server.port);
        shown += &format!("{:?}\n", connect(&url).await.map(drop));
    }
    let log = log.0.lock().unwrap().clone();
    assert!(log.contains("message: acquired"), "{log}");
    assert!(!log.contains("s3cr3t"), "{log}");
    assert!(shown.contains("Access denied") && !shown.contains("s3cr3t"), "{shown}");
}
