//! No password is ever logged.
// Helpers are part of the tests, but the lint does not know that.
#![allow(clippy::unwrap_used)]

mod support;

use lock_core::{Backend, ErrorKind, Locks, Url};
use lock_zookeeper::{DRIVER, ZookeeperBackend};
use support::{Ensemble, Log, PATIENCE, claim};

/// The password as text, and as the bytes that go over the wire.
const SECRETS: [&str; 2] = ["s3cr3t", "115, 51, 99, 114, 51, 116"];

#[tokio::test]
async fn no_secret_is_shown_by_debug_errors_or_logs() {
    let (log, _logging) = Log::start();
    let server = Ensemble::start(1);
    let mut shown = String::new();
    let right = server.options().user("me").password("s3cr3t").connect_timeout(PATIENCE);
    let backend = ZookeeperBackend::connect(right.clone()).await.unwrap();
    shown += &format!("{right:?} {backend:?}");
    let ours = claim("a");
    shown += &format!("{:?}", backend.acquire(&ours).await.unwrap());
    shown += &format!("{:?}", backend.acquire(&claim("a").queued(true)).await.unwrap());
    shown += &format!("{:?}", backend.renew(&ours).await.unwrap());
    shown += &format!("{:?}", backend.release(&ours).await.unwrap());
    let locks = Locks::new(backend).unwrap();
    locks.lock("b").unwrap().acquire().await.unwrap().release().await.unwrap();

    // Others are refused with theirs.
    let wrong = server.options().user("me").password("wrong-s3cr3t").connect_timeout(PATIENCE);
    let servers = server.servers().join(",");
    let url = format!("zookeeper://me:wrong-s3cr3t@{servers}/locks?connect_timeout=30s");
    for error in [
        ZookeeperBackend::connect(wrong).await.map(drop).unwrap_err(),
        (DRIVER.connect)(Url::parse(&url).unwrap()).await.map(drop).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        let mut cause: Option<&dyn std::error::Error> = Some(&error);
        while let Some(error) = cause {
            shown += &format!("{error} {error:?}");
            cause = error.source();
        }
    }
    locks.close(PATIENCE).await;

    let log = log.text();
    // The driver's own words are there, about each request.
    assert!(log.contains("DEBUG") && log.contains("zookeeper_client") && log.contains("/locks/b"), "{log}");
    for secret in SECRETS {
        assert!(!log.contains(secret), "{log}");
        assert!(!shown.contains(secret), "{shown}");
    }
}
