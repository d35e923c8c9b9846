//! Two nodes of a Galera cluster, on both of which one lock is wanted.
// Helpers are part of the tests, but the lint does not know that.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::{
    fs, mem,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::Path,
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::Duration,
};

use futures_util::future::join_all;
use lock_core::{Backend, Faults, FencingToken, Guard, Lock, Locks, Options, Release};
use sqlx::{Connection, MySqlConnection};
use support::{Kind, PATIENCE, Server, until};
use tokio::{sync::Mutex, time::timeout};

const LIBRARY: &str = "/usr/lib/galera/libgalera_smm.so";

/// How often clients must have been in each other's way for a test to have shown something.
const CONFLICTS: u32 = 10;

/// What a node calls the state in which it serves.
const SYNCED: u32 = 4;

/// The history that both nodes believe to have, and who they believe to be.
const HISTORY: &str = "6f1d2c3a-0000-11f1-8000-000000000001";
const MEMBERS: [&str; 2] = ["00000001-0000-11f1-8000-000000000001", "00000002-0000-11f1-8000-000000000002"];

struct Cluster {
    nodes: [Server; 2],
}

impl Cluster {
    async fn start() -> Self {
        assert!(Path::new(LIBRARY).is_file(), "{LIBRARY} must be there (Debian: apt-get install galera-4)");
        // Other tests' connections have their ports at 127.0.0.1.
        let addresses = [2, 3].map(|last| free(Ipv4Addr::new(127, 0, 0, last)));
        // Neither serves before the other is there.
        let nodes = thread::scope(|scope| {
            let starting = [0, 1].map(|node| scope.spawn(move || start_node(node, addresses)));
            starting.map(|node| node.join().expect("a node that serves"))
        });
        for node in &nodes {
            until("two nodes", || node.status("wsrep_cluster_size") == 2).await;
            until("a node in step", || node.status("wsrep_local_state") == SYNCED).await;
        }
        Self { nodes }
    }

    /// Two at each node, for whom nobody has made the locks' table.
    async fn clients(&self, ttl: Duration) -> Vec<Client> {
        let [first, second] = &self.nodes;
        first.sql("CREATE TABLE counter (id INT PRIMARY KEY, value INT); INSERT INTO counter VALUES (1, 0)");
        join_all([first, second, first, second].map(|node| Client::new(node, ttl))).await
    }

    /// How many transactions the nodes have undone because of the other one's.
    fn conflicts(&self) -> u32 {
        let undone =
            |node: &Server| node.status("wsrep_local_cert_failures") + node.status("wsrep_local_bf_aborts");
        self.nodes.iter().map(undone).sum()
    }

    async fn have_counted(&self, visits: u32) {
        for node in &self.nodes {
            let counted = || node.sql("SELECT value FROM counter").trim() == visits.to_string();
            until("all that was counted", counted).await;
        }
    }
}

fn free(ip: Ipv4Addr) -> SocketAddr {
    TcpListener::bind((ip, 0)).unwrap().local_addr().unwrap()
}

fn start_node(node: usize, addresses: [SocketAddr; 2]) -> Server {
    let [first, second] = addresses;
    let options = [
        format!("--wsrep-provider={LIBRARY}"),
        // A stranger's cluster at the same address is none of ours.
        format!("--wsrep-cluster-name=polylock-{}-{}", first.port(), second.port()),
        format!("--wsrep-cluster-address=gcomm://{first},{second}"),
        format!("--wsrep-node-address={}", addresses[node].ip()),
        format!("--wsrep-provider-options=gmcast.listen_addr=tcp://{};gcache.size=8M", addresses[node]),
        "--wsrep-on=ON".into(),
        "--wsrep-sst-method=skip".into(),
        "--binlog-format=ROW".into(),
        "--innodb-autoinc-lock-mode=2".into(),
    ];
    let options: Vec<_> = options.iter().map(String::as_str).collect();
    Server::start_on(Kind::MariaDb, &options, |data| remember(data, MEMBERS[node]))
}

/// Writes what a node would know that was in step with the other one when both stopped. So neither asks for the
/// other's data, for which there would have to be the scripts of Debian's `mariadb-server`.
fn remember(data: &Path, member: &str) {
    let state = format!("version: 2.1\nuuid: {HISTORY}\nseqno: 0\nsafe_to_bootstrap: 0\n");
    fs::write(data.join("grastate.dat"), state).unwrap();
    let [first, second] = MEMBERS;
    let view = format!(
        "my_uuid: {member}\n#vwbeg\nview_id: 3 {first} 1\nbootstrap: 0\n\
         member: {first} 0\nmember: {second} 0\n#vwend\n"
    );
    fs::write(data.join("gvwstate.dat"), view).unwrap();
}

/// How a lock is asked for that another has.
#[derive(Clone, Copy)]
enum How {
    Tries,
    Waits,
}

/// What a process is that takes the lock, and then counts at its own node.
struct Client {
    locks: Locks,
    lock: Lock,
    connection: Mutex<MySqlConnection>,
}

impl Client {
    async fn new(node: &Server, ttl: Duration) -> Self {
        let locks = Locks::with_options(node.backend().await, Options::default().with_ttl(ttl)).unwrap();
        let lock = locks.lock("a").unwrap();
        let connection = MySqlConnection::connect(&node.url()).await.unwrap();
        Self { locks, lock, connection: Mutex::new(connection) }
    }

    async fn take(&self, how: How) -> Guard {
        match how {
            How::Waits => self.lock.acquire().await.unwrap(),
            How::Tries => loop {
                if let Some(guard) = self.lock.try_acquire().await.unwrap() {
                    return guard;
                }
            },
        }
    }

    /// Counts one more, as only a holder can: what is read is written back later.
    async fn count(&self) {
        let mut connection = self.connection.lock().await;
        let counted: i32 =
            sqlx::query_scalar("SELECT value FROM counter").fetch_one(&mut *connection).await.unwrap();
        let write = sqlx::query("UPDATE counter SET value = ?").bind(counted + 1);
        write.execute(&mut *connection).await.unwrap();
    }
}

/// Where there is room for one.
#[derive(Default)]
struct Room {
    inside: AtomicU32,
    last: Mutex<Option<FencingToken>>,
}

impl Room {
    async fn visit(&self, client: &Client, how: How) {
        let guard = client.take(how).await;
        assert_eq!(self.inside.fetch_add(1, Ordering::SeqCst), 0, "two hold it");
        let token = Some(guard.fencing_token());
        let last = mem::replace(&mut *self.last.lock().await, token);
        assert!(last < token, "{last:?} came before {token:?}");
        client.count().await;
        self.inside.fetch_sub(1, Ordering::SeqCst);
        assert_eq!(guard.release().await.unwrap(), Release::Released);
    }
}

/// Has everybody take the lock at once, so many times and until they have been in each other's way; says how often.
async fn contend(cluster: &Cluster, clients: &[Client], how: How, least: u32) -> u32 {
    let room = Room::default();
    let mut rounds = 0;
    let contended = timeout(PATIENCE, async {
        while rounds < least || cluster.conflicts() < CONFLICTS {
            join_all(clients.iter().map(|client| room.visit(client, how))).await;
            rounds += 1;
        }
    });
    let ended = contended.await;
    assert!(ended.is_ok(), "{} conflicts in {rounds} rounds", cluster.conflicts());
    rounds
}

async fn everybody_gets_it_in_turn(how: How, ttl: Duration, least: u32) {
    let cluster = Cluster::start().await;
    let clients = cluster.clients(ttl).await;
    let rounds = contend(&cluster, &clients, how, least).await;
    cluster.have_counted(rounds * u32::try_from(clients.len()).unwrap()).await;
    for client in clients {
        // Core asks again after an error that may pass.
        let told = client.locks.statistics();
        assert_eq!((told.acquire.errors, told.release.errors, told.lost), (0, 0, 0), "{told:?}");
    }
}

#[tokio::test]
async fn who_tries_at_two_nodes_gets_it_in_turn() {
    everybody_gets_it_in_turn(How::Tries, Duration::from_secs(10), 20).await;
}

#[tokio::test]
async fn who_waits_at_two_nodes_gets_it_in_turn() {
    // A release at the other node wakes nobody here: who waits asks three times in this time.
    everybody_gets_it_in_turn(How::Waits, Duration::from_secs(2), 4).await;
}

#[tokio::test]
async fn a_node_promises_nothing_through_faults() {
    let cluster = Cluster::start().await;
    for node in &cluster.nodes {
        let told = node.backend().await.guarantees();
        assert_eq!((told.exclusion, told.fencing), (Faults::NONE, Faults::NONE));
    }
}
