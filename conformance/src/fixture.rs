use std::{fmt, io, net::SocketAddr, time::Duration};

use async_trait::async_trait;
use lock_core::{Backend, Guarantees, Name, Promise, Result};

/// What the suite has to know of a backend: how to start a server, and how to connect.
///
/// ```no_run
/// # use std::{io, process::ExitCode};
/// # use lock_conformance::{Fixture, Server, servers::Directory};
/// # use lock_core::{Backend, Guarantees, Result, Scope};
/// # async fn open(_: &str) -> Result<Box<dyn Backend>> { unimplemented!() }
/// #[derive(Debug)]
/// struct MyFixture;
///
/// #[async_trait::async_trait]
/// impl Fixture for MyFixture {
///     fn name(&self) -> &'static str {
///         "mine"
///     }
///     fn guarantees(&self) -> Guarantees {
///         Guarantees::nothing("Mine", Scope::Machine)
///     }
///     fn serve(&self) -> io::Result<Box<dyn Server>> {
///         Ok(Box::new(Directory::new("mine")?))
///     }
///     async fn connect(&self, url: &str) -> Result<Box<dyn Backend>> {
///         open(url).await
///     }
/// }
///
/// fn main() -> ExitCode {
///     lock_conformance::main(MyFixture)
/// }
/// ```
#[async_trait]
pub trait Fixture: fmt::Debug + Send + Sync + 'static {
    /// The backend's name in the suite's output.
    fn name(&self) -> &'static str;

    /// What the backend promises on the server that [`serve`](Self::serve) starts. The cases to run are
    /// chosen by it, before any server runs; a case of its own compares it with the backend's word.
    fn guarantees(&self) -> Guarantees;

    /// The faults that [`Server::pull`] can cause here, and what else the cases may ask for.
    fn offers(&self) -> &'static [Need] {
        &[]
    }

    /// The ttl that cases use: as small as is safe on a loaded machine with two cores.
    fn ttl(&self) -> Duration {
        Duration::from_millis(500)
    }

    /// Starts a server, or makes a store, that nobody else uses; it ends when the value is dropped.
    ///
    /// # Errors
    ///
    /// Whatever keeps the server from starting. The text says what to install if a program is missing.
    fn serve(&self) -> io::Result<Box<dyn Server>>;

    /// Connects a new client, as its user would by this URL. It comes from [`Server::url`].
    ///
    /// # Errors
    ///
    /// The backend's own.
    async fn connect(&self, url: &str) -> Result<Box<dyn Backend>>;

    /// The key, node, row or file that stands for a name, where
    /// [`Lever::DeleteRecord`] is offered.
    ///
    /// # Errors
    ///
    /// The backend's own.
    fn record(&self, _url: &str, name: &Name) -> Result<String> {
        Ok(name.as_str().into())
    }
}

/// A running server or store, started for the suite.
pub trait Server: fmt::Debug + Send + Sync {
    /// The URL under which a client connects; through `link`, if that is given, in place of
    /// [`wire`](Self::wire).
    fn url(&self, link: Option<SocketAddr>) -> String;

    /// Where the server listens; `None` if clients do not speak to it by TCP. The harness then puts its
    /// faults between the core and the backend.
    fn wire(&self) -> Option<SocketAddr> {
        None
    }

    /// Causes a fault.
    ///
    /// # Errors
    ///
    /// What went wrong; always for a lever that the fixture does not [offer](Fixture::offers).
    fn pull(&self, lever: Lever<'_>) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::Unsupported, format!("this server has no lever {lever:?}")))
    }

    /// Runs a command on the server, past all links, and gives its reply as text.
    ///
    /// # Errors
    ///
    /// The server's error reply, or that it cannot be reached; always unless [`Need::Commands`] is
    /// offered.
    fn command(&self, words: &[&str]) -> io::Result<String> {
        Err(io::Error::new(io::ErrorKind::Unsupported, format!("this server has no command {words:?}")))
    }
}

/// A fault on the server's side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Lever<'a> {
    /// Stops the server's process where it is (SIGSTOP).
    Stop,
    /// Lets it go on (SIGCONT).
    Continue,
    /// Kills it (SIGKILL).
    Kill,
    /// Starts it again after a kill, at the same address, with the data that it kept.
    Start,
    /// Starts it again after a kill, at the same address, without any data.
    StartEmpty,
    /// Removes what stands for one name, as an operator might. See [`Fixture::record`].
    DeleteRecord(&'a str),
    /// Makes the server forget all its data.
    LoseData,
    /// Breaks every client's connection.
    KillClients,
    /// Moves the server's wall clock by so many seconds. The first time it may restart the server, with
    /// the data that it kept; by 0, it does nothing else.
    StepClock(i64),
}

/// What a case cannot do without. A case is listed for a fixture if all its needs are met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Need {
    /// Clients reach the server by TCP, so that single bytes can be counted and lost.
    Wire,
    /// Clients in several processes can contend. Follows from the fixture's guarantees.
    Processes,
    /// The server is a process: [`Lever::Stop`], `Continue`, `Kill`, `Start` and `StartEmpty`.
    ServerProcess,
    /// [`Lever::DeleteRecord`].
    DeleteRecord,
    /// [`Lever::LoseData`].
    LoseData,
    /// [`Lever::KillClients`].
    KillClients,
    /// [`Lever::StepClock`].
    StepClock,
    /// [`Server::command`] takes Redis commands.
    Commands,
    /// A server that no other case uses. Follows from every lever that more than one name can feel.
    OwnServer,
    /// Only where this is promised.
    Promised(Promise),
    /// Only where this is not promised: the case shows that it is right not to be.
    Absent(Promise),
    /// Only for the fixture of this name.
    Fixture(&'static str),
}

impl Need {
    /// Whether the fixture meets it.
    pub(crate) fn met_by(self, fixture: &dyn Fixture) -> bool {
        let guarantees = fixture.guarantees();
        match self {
            Self::OwnServer => true,
            Self::Processes => guarantees.scope >= lock_core::Scope::Machine,
            Self::Promised(promise) => guarantees.meets(promise),
            Self::Absent(promise) => !guarantees.meets(promise),
            Self::Fixture(name) => fixture.name() == name,
            offered => fixture.offers().contains(&offered),
        }
    }

    /// Whether other cases on the same server would feel it.
    pub(crate) fn disturbs_others(self) -> bool {
        use Need::{KillClients, LoseData, OwnServer, ServerProcess, StepClock};
        matches!(self, OwnServer | ServerProcess | LoseData | KillClients | StepClock)
    }
}
