use std::time::Duration;

use lock_core::{Address, Doubt, Error, ErrorKind, Owner, Result};
use redis::{
    AsyncConnectionConfig, ProtocolVersion, PushInfo, PushKind, RedisConnectionInfo, RedisError,
    aio::MultiplexedConnection,
    io::tcp::socket2::{SockRef, TcpKeepalive},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;

use crate::{Protocol, RedisOptions, error, link::Link, tls, wake::Bells};

/// An idle connection whose peer is gone without a word is noticed within ten seconds.
const KEEPALIVE: Duration = Duration::from_secs(5);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);
const UNACKNOWLEDGED: Duration = Duration::from_secs(10);

/// Opens connections: socket, TLS, greeting.
pub(crate) struct Dialer {
    options: RedisOptions,
    password: Option<String>,
    tls: Option<TlsConnector>,
    doubt: Doubt,
}

/// What bytes go over.
trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

impl Dialer {
    /// Reads the files that the options name.
    pub(crate) fn new(options: RedisOptions, doubt: Doubt) -> Result<Self> {
        let password = options.read_password()?;
        let tls = options.tls.then(|| tls::connector(options.root_certificates.as_deref())).transpose()?;
        Ok(Self { options, password, tls, doubt })
    }

    /// How long one [`dial`](Self::dial) may take.
    pub(crate) fn limit(&self) -> Duration {
        self.options.connect_timeout
    }

    /// Connects once, within the limit.
    pub(crate) async fn dial(&self) -> Result<Link> {
        let limit = self.limit();
        tokio::time::timeout(limit, self.greet()).await.unwrap_or_else(|_| {
            let address = &self.options.server;
            let text = format!("redis at {address} did not answer within {limit:?}");
            Err(Error::new(ErrorKind::Unavailable, text))
        })
    }

    /// Greets in RESP3, for the pushes, and in RESP2 if the server does not want to speak that.
    async fn greet(&self) -> Result<Link> {
        let refused = match self.options.protocol {
            Protocol::Resp2 => None,
            Protocol::Resp3 | Protocol::Newest => match self.greet_in(ProtocolVersion::RESP3).await? {
                Ok(link) => return Ok(link),
                Err(refused) => Some(refused),
            },
        };
        if let Some(refused) = refused {
            let shown = error::while_dialing(&refused, self.password.as_deref());
            let is_greeting =
                !refused.is_io_error() && !matches!(error::code(&refused), "WRONGPASS" | "NOAUTH");
            if self.options.protocol == Protocol::Resp3 || !is_greeting {
                return Err(shown);
            }
            tracing::debug!(reason = %shown, "redis does not speak RESP3; waiters poll");
        }
        let greeted = self.greet_in(ProtocolVersion::RESP2).await?;
        greeted.map_err(|refused| error::while_dialing(&refused, self.password.as_deref()))
    }

    async fn greet_in(&self, protocol: ProtocolVersion) -> Result<Result<Link, RedisError>> {
        let wire = self.open().await?;
        let bells = Bells::new(Owner::random()?);
        let pushes = protocol == ProtocolVersion::RESP3;
        // Core's limit drops a request; the driver's own would only hide that it is still under way.
        let mut config = AsyncConnectionConfig::new().set_response_timeout(None);
        if pushes {
            let bells = bells.clone();
            config = config.set_push_sender(move |push: PushInfo| {
                if push.kind == PushKind::Message {
                    bells.ring(&push.data);
                }
                Ok::<(), std::convert::Infallible>(())
            });
        }
        let who = self.introduction(protocol);
        let opened = MultiplexedConnection::new_with_config(&who, wire, config).await;
        let (connection, driver) = match opened {
            Ok(opened) => opened,
            Err(refused) => return Ok(Err(refused)),
        };
        tracing::debug!(address = %self.options.server, pushes, "connected to redis");
        let channel = pushes.then(|| self.options.prefix.channel(bells.name()));
        Ok(Ok(Link::new(connection, driver, bells, channel, self.doubt.clone())))
    }

    fn introduction(&self, protocol: ProtocolVersion) -> RedisConnectionInfo {
        let who = RedisConnectionInfo::default()
            .set_db(self.options.database)
            .set_protocol(protocol)
            .set_skip_set_lib_name();
        let who = match &self.options.user {
            Some(user) => who.set_username(user),
            None => who,
        };
        match &self.password {
            Some(password) => who.set_password(password),
            None => who,
        }
    }

    async fn open(&self) -> Result<Box<dyn Wire>> {
        let Address { host, port, .. } = &self.options.server;
        let unreachable = |e| error::unreachable(&self.options.server, e);
        let socket = TcpStream::connect((host.as_str(), *port)).await.map_err(unreachable)?;
        let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE_INTERVAL);
        let settings = SockRef::from(&socket);
        settings.set_tcp_nodelay(true).map_err(unreachable)?;
        settings.set_tcp_keepalive(&keepalive).map_err(unreachable)?;
        #[cfg(target_os = "linux")]
        settings.set_tcp_user_timeout(Some(UNACKNOWLEDGED)).map_err(unreachable)?;
        let Some(tls) = &self.tls else { return Ok(Box::new(socket)) };
        let server = tls::server_name(host)?;
        Ok(Box::new(tls.connect(server, socket).await.map_err(unreachable)?))
    }
}
