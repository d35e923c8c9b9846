use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, LazyLock},
    time::Instant,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{ReadHalf, WriteHalf},
    },
    runtime::{Builder, Runtime},
    sync::mpsc,
    task::JoinSet,
    try_join,
};
use tokio_util::task::AbortOnDropHandle;

use super::{
    Way,
    requests::{Request, Splitter},
    state::Shared,
};

/// Links have a thread of their own: a case may block or shut down the runtime of its clients.
static RUNTIME: LazyLock<io::Result<Runtime>> = LazyLock::new(|| {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(1).thread_name("links").enable_all().build()
});

/// Starts a proxy on a free port. Dropping the handle resets its connections.
pub(super) fn listen(
    server: SocketAddr,
    shared: Arc<Shared>,
) -> io::Result<(SocketAddr, AbortOnDropHandle<()>)> {
    let runtime = RUNTIME.as_ref().map_err(|error| io::Error::new(error.kind(), error.to_string()))?;
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let _context = runtime.enter();
    let listener = TcpListener::from_std(listener)?;
    Ok((address, AbortOnDropHandle::new(runtime.spawn(serve(listener, server, shared)))))
}

async fn serve(listener: TcpListener, server: SocketAddr, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Ok((client, _)) = listener.accept() => {
                shared.requests.send_modify(|requests| requests.connections += 1);
                connections.spawn(connection(client, server, shared.clone()));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn connection(mut client: TcpStream, server: SocketAddr, shared: Arc<Shared>) {
    let (cuts, refusing) = {
        let state = shared.state.borrow();
        (state.cuts, state.refusing)
    };
    let _ = client.set_zero_linger();
    if refusing {
        return;
    }
    let Ok(mut server) = TcpStream::connect(server).await else { return };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let ended = {
        let (from_client, to_client) = client.split();
        let (from_server, to_server) = server.split();
        tokio::select! {
            () = shared.cut_more_than(cuts) => Err(io::ErrorKind::ConnectionReset.into()),
            ended = async {
                try_join!(
                    up(from_client, to_server, &shared),
                    down(from_server, to_client, &shared),
                )
            } => ended,
        }
    };
    // A clean end was passed on already, by both sides; everything else ends by a reset of both.
    if ended.is_err() {
        let _ = server.set_zero_linger();
    }
}

async fn up(mut from: ReadHalf<'_>, mut to: WriteHalf<'_>, shared: &Shared) -> io::Result<()> {
    let (queue, mut due) = mpsc::unbounded_channel::<(Instant, Request)>();
    let read = async move {
        let (mut buffer, mut splitter) = (vec![0; 16 * 1024], Splitter::default());
        loop {
            let length = from.read(&mut buffer).await?;
            if length == 0 {
                return Ok(());
            }
            let at = Instant::now() + shared.state.borrow().to_server.delay;
            for request in splitter.push(&buffer[..length]) {
                if !request.is_ping() {
                    shared.requests.send_modify(|requests| requests.count(&request.word));
                }
                let _ = queue.send((at, request));
            }
        }
    };
    let write = async {
        while let Some((at, request)) = due.recv().await {
            tokio::time::sleep_until(at.into()).await;
            let ping = request.is_ping();
            if !ping {
                shared.before_request(&request.word);
            }
            shared.open(Way::ToServer).await;
            to.write_all(&request.bytes).await?;
            if !ping {
                shared.after_request();
            }
        }
        to.shutdown().await
    };
    try_join!(read, write).map(drop)
}

async fn down(mut from: ReadHalf<'_>, mut to: WriteHalf<'_>, shared: &Shared) -> io::Result<()> {
    let (queue, mut due) = mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
    let read = async move {
        let mut buffer = vec![0; 16 * 1024];
        loop {
            let length = from.read(&mut buffer).await?;
            if length == 0 {
                return Ok(());
            }
            let at = Instant::now() + shared.state.borrow().to_client.delay;
            let _ = queue.send((at, buffer[..length].to_vec()));
        }
    };
    let write = async {
        while let Some((at, bytes)) = due.recv().await {
            tokio::time::sleep_until(at.into()).await;
            shared.open(Way::ToClient).await;
            let cuts = shared.state.borrow().cuts;
            shared.before_reply();
            if shared.state.borrow().cuts > cuts {
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            to.write_all(&bytes).await?;
        }
        to.shutdown().await
    };
    try_join!(read, write).map(drop)
}
