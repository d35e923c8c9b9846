//! A hundred waiters on a name that is held: what waiting costs while nothing happens.

use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::{Arena, Entrant, Findings, PAIR, PARKED};
use crate::{
    contender::Client,
    failure::{Failure, Result},
    measure::cpu_time,
    record::{Figures, Outcome, Workload},
    server::Server,
};

/// Until everybody waits.
const SETTLING: Duration = Duration::from_secs(1);

/// Each alone with the server, whose counters do not tell from whom a command was.
pub(crate) async fn waiting(arena: &mut Arena<'_>, server: &mut dyn Server) -> Findings {
    arena.disconnect().await;
    let mut findings = Findings::new();
    arena.progress.begin(&arena.title(Workload::Waiting), arena.entrants.len() as u64);
    for entrant in &arena.entrants {
        arena.progress.step(&entrant.who.name);
        let outcome = match entrant.contender.lacks(Workload::Waiting) {
            Some(why) => Outcome::Absent(why.into()),
            None => match turn(arena, entrant, server).await {
                Ok(figures) => Outcome::Measured(figures),
                Err(failure) => Outcome::Failed(failure.text().into()),
            },
        };
        findings.push((entrant.who.clone(), outcome));
    }
    findings
}

async fn turn(arena: &Arena<'_>, entrant: &Entrant, server: &mut dyn Server) -> Result<Figures> {
    let waiters = entrant.open(arena.place).await?;
    // The holder has a connection of its own where there is one.
    let holder = match arena.place.backend() {
        "memory" => waiters.clone(),
        _ => entrant.open(arena.place).await?,
    };
    let figures = look(arena, &*holder, &*waiters, server).await;
    holder.close().await;
    waiters.close().await;
    figures
}

async fn look(
    arena: &Arena<'_>,
    holder: &dyn Client,
    waiters: &dyn Client,
    server: &mut dyn Server,
) -> Result<Figures> {
    let name = arena.place.name("waiting");
    let mut held = holder.lock(&name)?;
    timeout(PAIR, held.acquire()).await.map_err(|_| Failure::new("the name cannot be held"))??;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..PARKED {
        let mut lock = waiters.lock(&name)?;
        tasks.spawn(async move { lock.acquire().await });
    }
    sleep(SETTLING).await;

    let (before, server_before) = (server.commands().await, arena.server_cpu());
    let (begin, cpu) = (std::time::Instant::now(), cpu_time());
    sleep(arena.plan.waiting).await;
    let (seconds, cpu) = (begin.elapsed().as_secs_f64(), cpu_time() - cpu);
    let (server_cpu, after) = (arena.server_cpu_since(server_before), server.commands().await);

    if let Some(early) = tasks.try_join_next() {
        early??;
        return Err(Failure::new("a waiter acquired the name that is held"));
    }
    tasks.shutdown().await;
    timeout(PAIR, held.release()).await.map_err(|_| Failure::new("no release"))??;
    let commands = before.zip(after).map(|(before, after)| after.since(&before, seconds));
    let percent = |cpu: Duration| cpu.as_secs_f64() * 100.0 / seconds;
    Ok(Figures::Waiting {
        commands_per_second: commands.as_ref().map(|commands| commands.total),
        by_kind: commands.map(|commands| commands.by_kind).unwrap_or_default(),
        server_cpu_percent: server_cpu.map(percent),
        client_cpu_percent: percent(cpu),
    })
}

#[cfg(all(test, feature = "memory"))]
mod tests {
    use std::sync::{Arc, Mutex, PoisonError};

    use async_trait::async_trait;
    use tokio::sync::OwnedMutexGuard;

    use super::*;
    use crate::{
        contender::{Contender, Lock},
        place::Place,
        record::{self, Kind},
        run::{Plan, Silent},
        server::Commands,
    };

    /// The names of the clients that are connected.
    type Connected = Arc<Mutex<Vec<&'static str>>>;

    fn names(connected: &Connected) -> Vec<&'static str> {
        let mut names = connected.lock().unwrap_or_else(PoisonError::into_inner).clone();
        names.sort_unstable();
        names.dedup();
        names
    }

    struct Named(&'static str, Connected);

    #[async_trait]
    impl Contender for Named {
        fn who(&self) -> record::Contender {
            let text = String::new;
            record::Contender { name: self.0.into(), kind: Kind::Peer, language: text(), version: text() }
        }

        async fn open(&self, _: &Place) -> Result<Arc<dyn Client>> {
            self.1.lock().unwrap_or_else(PoisonError::into_inner).push(self.0);
            Ok(Arc::new(Connection(self.0, self.1.clone(), Arc::default())))
        }
    }

    struct Connection(&'static str, Connected, Arc<tokio::sync::Mutex<()>>);

    impl Client for Connection {
        fn lock(&self, _: &str) -> Result<Box<dyn Lock>> {
            Ok(Box::new(Handle(self.2.clone(), None)))
        }
    }

    impl Drop for Connection {
        fn drop(&mut self) {
            let mut connected = self.1.lock().unwrap_or_else(PoisonError::into_inner);
            let own = connected.iter().position(|name| *name == self.0);
            if let Some(own) = own {
                connected.swap_remove(own);
            }
        }
    }

    struct Handle(Arc<tokio::sync::Mutex<()>>, Option<OwnedMutexGuard<()>>);

    #[async_trait]
    impl Lock for Handle {
        async fn acquire(&mut self) -> Result {
            self.1 = Some(self.0.clone().lock_owned().await);
            Ok(())
        }

        async fn release(&mut self) -> Result {
            self.1 = None;
            Ok(())
        }
    }

    /// Whose commands it counts.
    struct Counting(Connected, Vec<Vec<&'static str>>);

    #[async_trait]
    impl Server for Counting {
        async fn describe(&mut self) -> Result<record::Server> {
            Err(Failure::new("not asked for"))
        }

        async fn commands(&mut self) -> Option<Commands> {
            self.1.push(names(&self.0));
            Some(Commands::default())
        }
    }

    #[tokio::test]
    async fn nobody_else_is_connected_while_one_is_measured() {
        let (connected, place) = (Connected::default(), Place::new("memory:").unwrap());
        let mut plan = Plan::new(["memory:"]);
        plan.waiting = Duration::from_millis(10);
        let mut entrants = Vec::new();
        for name in ["one", "other"] {
            entrants.push(Entrant::new(Box::new(Named(name, connected.clone())), &place).await);
        }
        assert_eq!(names(&connected), ["one", "other"]);
        let mut arena =
            Arena { plan: &plan, place: &place, processes: Vec::new(), entrants, progress: &Silent };
        let mut server = Counting(connected.clone(), Vec::new());
        let findings = waiting(&mut arena, &mut server).await;
        assert!(findings.iter().all(|(_, it)| matches!(it, Outcome::Measured(_))), "{findings:?}");
        assert_eq!(server.1, [["one"], ["one"], ["other"], ["other"]]);
        assert_eq!(names(&connected), [""; 0]);
    }
}
