//! The wire's faults, against a server that repeats every request.

use std::{
    net::{SocketAddr, TcpListener},
    thread,
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::{Link, Way};

const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";
const STOP: &[u8] = b"*1\r\n$4\r\nSTOP\r\n";
const SOON: Duration = Duration::from_millis(60);

/// A server that sends back what it gets; and the link to it.
fn echo() -> Link {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut from, mut to) = (stream.as_ref().unwrap().try_clone().unwrap(), stream.unwrap());
            thread::spawn(move || std::io::copy(&mut from, &mut to));
        }
    });
    Link::to(address).unwrap()
}

async fn connect(link: &Link) -> TcpStream {
    TcpStream::connect(link.address().unwrap()).await.unwrap()
}

/// Where it is reset, that may come while the connection is still being made.
async fn connect_and_ask(link: &Link) -> std::io::Result<()> {
    ask(&mut TcpStream::connect(link.address().unwrap()).await?, PING).await
}

/// Sends a request and waits for what comes back.
async fn ask(stream: &mut TcpStream, request: &[u8]) -> std::io::Result<()> {
    stream.write_all(request).await?;
    let mut reply = vec![0; request.len()];
    stream.read_exact(&mut reply).await?;
    assert_eq!(reply, request);
    Ok(())
}

async fn is_silent(stream: &mut TcpStream) -> bool {
    tokio::time::timeout(SOON, stream.read_u8()).await.is_err()
}

#[tokio::test]
async fn it_passes_and_counts() {
    let link = echo();
    let mut stream = connect(&link).await;
    for _ in 0..3 {
        ask(&mut stream, PING).await.unwrap();
    }
    link.sent(|requests| requests.total == 3).await;
    assert_eq!((link.requests().of("PING"), link.requests().of("GET")), (3, 0));
    assert_eq!(link.requests().connections, 1);
    drop(stream);
    ask(&mut connect(&link).await, PING).await.unwrap();
    assert_eq!(link.requests().connections, 2);
}

#[tokio::test]
async fn a_cut_resets_what_is_open_and_lets_new_connections_in() {
    let link = echo();
    let (mut one, mut other) = (connect(&link).await, connect(&link).await);
    ask(&mut one, PING).await.unwrap();
    ask(&mut other, PING).await.unwrap();
    link.cut();
    for stream in [&mut one, &mut other] {
        let error = stream.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    }
    ask(&mut connect(&link).await, PING).await.unwrap();
    link.down();
    assert!(connect_and_ask(&link).await.is_err());
    link.heal();
    ask(&mut connect(&link).await, PING).await.unwrap();
}

#[tokio::test]
async fn a_blackhole_holds_everything_until_it_heals() {
    for way in [Way::ToServer, Way::ToClient, Way::Both] {
        let link = echo();
        let mut stream = connect(&link).await;
        ask(&mut stream, PING).await.unwrap();
        link.blackhole(way);
        stream.write_all(PING).await.unwrap();
        assert!(is_silent(&mut stream).await);
        link.heal();
        let mut reply = vec![0; PING.len()];
        stream.read_exact(&mut reply).await.unwrap();
    }
}

#[tokio::test]
async fn what_was_held_is_lost_by_a_cut() {
    let link = echo();
    let mut stream = connect(&link).await;
    link.blackhole(Way::ToClient);
    stream.write_all(PING).await.unwrap();
    link.sent(|requests| requests.total == 1).await;
    link.cut();
    assert!(stream.read_u8().await.is_err());
}

#[tokio::test]
async fn a_delay_delays_each_request_by_no_more_than_itself() {
    let link = echo();
    let mut stream = connect(&link).await;
    link.delay(Way::Both, SOON);
    let began = Instant::now();
    for _ in 0..5 {
        stream.write_all(PING).await.unwrap();
    }
    let mut replies = vec![0; 5 * PING.len()];
    stream.read_exact(&mut replies).await.unwrap();
    assert!(began.elapsed() >= 2 * SOON && began.elapsed() < 9 * SOON, "{:?}", began.elapsed());
}

#[tokio::test]
async fn one_reply_is_lost_and_the_link_cut() {
    let link = echo();
    let mut stream = connect(&link).await;
    ask(&mut stream, PING).await.unwrap();
    link.lose_next_reply();
    assert!(ask(&mut stream, PING).await.is_err());
    link.cut_more_than(0).await;
    assert_eq!(link.cuts(), 1);
    ask(&mut connect(&link).await, PING).await.unwrap();
}

#[tokio::test]
async fn so_many_requests_pass_before_the_cut() {
    let link = echo();
    let mut stream = connect(&link).await;
    link.cut_after_requests(3);
    for _ in 0..2 {
        ask(&mut stream, PING).await.unwrap();
    }
    assert!(ask(&mut stream, PING).await.is_err());
    assert_eq!((link.cuts(), link.requests().total), (1, 3));
}

#[tokio::test]
async fn from_one_word_on_nothing_passes() {
    let link = echo();
    let mut stream = connect(&link).await;
    link.hold_from("STOP");
    ask(&mut stream, PING).await.unwrap();
    stream.write_all(STOP).await.unwrap();
    assert!(is_silent(&mut stream).await);
    link.heal();
    let mut reply = vec![0; STOP.len()];
    stream.read_exact(&mut reply).await.unwrap();
}

#[tokio::test]
async fn a_dropped_link_and_a_missing_server_are_a_reset() {
    let link = echo();
    let mut stream = connect(&link).await;
    ask(&mut stream, PING).await.unwrap();
    drop(link);
    assert!(stream.read_u8().await.is_err());

    let nobody: SocketAddr = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let link = Link::to(nobody).unwrap();
    assert!(connect_and_ask(&link).await.is_err());
}
