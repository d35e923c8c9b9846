use std::{
    env, io,
    process::ExitCode,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use libtest_mimic::{Arguments, Failed, Trial};
use tokio::runtime::Builder;

use crate::{
    Fixture, Need, Server, Stage,
    case::{Case, Failure},
    cases,
    history::History,
    logs, mutants,
};

/// The environment variable that chooses the full tier, as `--full` does.
const FULL: &str = "POLYLOCK_FULL";

/// Lists or runs the cases that apply to the fixture, as the command line says.
pub(crate) fn run(fixture: Arc<dyn Fixture>) -> ExitCode {
    let mut arguments: Vec<String> = env::args().collect();
    if arguments.iter().any(|argument| argument == "--list-law-mutants") {
        return list_law_mutants(&*fixture);
    }
    let full = arguments.iter().any(|argument| argument == "--full") || env::var_os(FULL).is_some();
    arguments.retain(|argument| argument != "--full");
    let arguments = Arguments::from_iter(arguments);
    logs::start();

    let harness = Arc::new(Harness { fixture, full, shared: Mutex::default() });
    let all: Vec<_> = cases::all().collect();
    let applicable = all.iter().filter(|(_, case)| applies(case, &*harness.fixture));
    let trials: Vec<_> = applicable.map(|(group, case)| harness.trial(group, case)).collect();
    if !arguments.list {
        let (name, tier) = (harness.fixture.name(), if full { "full" } else { "default" });
        eprintln!("{name}: {} of {} cases apply, {tier} tier", trials.len(), all.len());
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Whether every need of the case is met.
fn applies(case: &Case, fixture: &dyn Fixture) -> bool {
    case.needs.iter().all(|need| need.met_by(fixture))
}

fn list_law_mutants(fixture: &dyn Fixture) -> ExitCode {
    use std::io::Write;

    let mut output = io::stdout().lock();
    for mutant in mutants::LAW_MUTANTS {
        let case = cases::all().find(|(group, case)| mutant.case == format!("{group}::{}", case.name));
        let Some((_, case)) = case else {
            eprintln!("there is no case {} to catch {}", mutant.case, mutant.name);
            return ExitCode::FAILURE;
        };
        if applies(&case, fixture) && writeln!(output, "{}\t{}", mutant.name, mutant.case).is_err() {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

#[derive(Debug)]
struct Harness {
    fixture: Arc<dyn Fixture>,
    full: bool,
    /// The server of all cases that do not disturb others.
    shared: Mutex<Option<Arc<dyn Server>>>,
}

impl Harness {
    fn trial(self: &Arc<Self>, group: &str, case: &Case) -> Trial {
        let (harness, case) = (self.clone(), *case);
        Trial::test(format!("{group}::{}", case.name), move || {
            harness.play(&case).map_err(|failure| Failed::from(format!("{failure:?}")))
        })
    }

    fn play(&self, case: &Case) -> Result<(), Failure> {
        let alone = case.needs.iter().any(|need: &Need| need.disturbs_others());
        let server = if alone { self.fixture.serve()?.into() } else { self.shared_server()? };
        let history = Arc::new(History::default());
        let stage = Stage::new(self.fixture.clone(), server, case.name, self.full, history.clone());
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let limit = Duration::from_secs(if self.full { 900 } else { 30 });
        let ended = runtime.block_on(async { tokio::time::timeout(limit, (case.run)(stage)).await });
        runtime.shutdown_timeout(Duration::from_secs(1));
        ended.map_err(|_| Failure::new(format!("still running after {limit:?}")))??;
        history.check().map_err(Failure::new)
    }

    fn shared_server(&self) -> io::Result<Arc<dyn Server>> {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(server) = &*shared {
            return Ok(server.clone());
        }
        let server: Arc<dyn Server> = self.fixture.serve()?.into();
        *shared = Some(server.clone());
        Ok(server)
    }
}
