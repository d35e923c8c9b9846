use std::{collections::BTreeSet, path::PathBuf};

use clap::ValueEnum;
use lock_bench::{Plan, record::Workload};

use crate::exit::{self, Failure};

const HELP: &str = "\
What is measured:
  uncontended  one client acquires and releases one name: p50 and p99, client and local server on one core
  throughput   64 tasks, a name each: pairs a second, client CPU for each pair
  hand-over    16 waiters on one name, in one process and in four: how fast the lock goes to another
               waiter, how fairly, and that it never has two holders
  waiting      100 waiters on a name that is held: commands a second, CPU
  holding      1,000 and 10,000 names, held and renewed: the same, memory, and whether any is lost
  crash        the holder is killed with SIGKILL: when the next one holds

Beside our locks, \"raw\" sends the same statements on the bare driver, and \"raw, unfenced\" the fewest that lock \
at all. All take turns. The machine's noise is in every time; what can be trusted is the ratio to raw, and for \
hand-overs, where raw does not wait, to the best other lock. Nothing else should run meanwhile, and the server should \
be the one that will be used, as it will be configured: it is under full load for minutes.

All that is made on a server is called polylock-bench- and something random, and removed at the end, also after \
Ctrl-C, which stops and prints what was measured. In a database there are tables for that time, so its user must be \
allowed to make them.

Exit codes:
  0      all was measured
  1      some server or contender failed, and the rest was measured; a promise was not kept: two held
         one lock, a held lock was lost, a take-over came late; or a file cannot be written
  2      usage: an argument or URL cannot be used, a file cannot be made
  128+n  stopped by signal n; what was measured until then was printed

Examples:
  polylock bench redis://127.0.0.1 --quick
  polylock bench redis://127.0.0.1 etcd://127.0.0.1 mysql://me@127.0.0.1/test --html report.html
  polylock bench --url-file secret-url --only uncontended,crash --json - | jq .";

#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub(crate) struct Bench {
    /// The servers, such as redis://127.0.0.1 or file:///var/lib/locks
    ///
    /// Other users of this machine see arguments: a URL with a password belongs into a file.
    #[arg(value_name = "URL", required_unless_present = "url_file")]
    urls: Vec<String>,
    /// A file that holds the URL of one more server; may be given again
    #[arg(long, value_name = "PATH")]
    url_file: Vec<PathBuf>,
    /// Measure these only
    #[arg(long, value_name = "WORKLOAD", value_delimiter = ',')]
    only: Vec<Chosen>,
    /// Measure all but these
    #[arg(long, value_name = "WORKLOAD", value_delimiter = ',')]
    skip: Vec<Chosen>,
    /// How often each contender has its turn [default: 5; with --quick 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: Option<u16>,
    /// How long a turn is [default: 3; with --quick 0.5]
    #[arg(long, value_name = "S", value_parser = seconds)]
    seconds: Option<f64>,
    /// For a first look: about a minute for a server, instead of seven
    #[arg(long)]
    quick: bool,
    /// Let other lock libraries take part
    ///
    /// Those in Rust need a build with the Cargo feature "bench-peers"; those in Python and Java, the
    /// interpreter and the library.
    #[arg(long)]
    peers: bool,
    /// Write the record as JSON; with -, to standard output in place of the table
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
    /// Write a page with diagrams, for a browser
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Chosen {
    Uncontended,
    Throughput,
    HandOver,
    Waiting,
    Holding,
    Crash,
}

impl Chosen {
    fn workloads(self) -> &'static [Workload] {
        match self {
            Self::Uncontended => &[Workload::Uncontended],
            Self::Throughput => &[Workload::Throughput],
            Self::HandOver => &[Workload::HandoverWithin, Workload::HandoverBetween],
            Self::Waiting => &[Workload::Waiting],
            Self::Holding => &[Workload::Holding, Workload::HoldingMany],
            Self::Crash => &[Workload::Crash],
        }
    }
}

impl Bench {
    pub(super) fn plan(&self) -> Result<Plan, Failure> {
        let mut urls = self.urls.clone();
        for path in &self.url_file {
            urls.push(crate::location::read(path).map_err(|failure| failure.with_code(exit::BENCH_USAGE))?);
        }
        let mut plan = Plan::new(urls);
        if self.quick {
            plan = plan.quick();
        }
        let chosen =
            |list: &[Chosen]| list.iter().flat_map(|one| one.workloads()).copied().collect::<BTreeSet<_>>();
        if !self.only.is_empty() {
            plan.workloads = chosen(&self.only);
        }
        plan.workloads = &plan.workloads - &chosen(&self.skip);
        if plan.workloads.is_empty() {
            return Err(Failure::new(exit::BENCH_USAGE, "--skip leaves nothing to measure"));
        }
        plan.rounds = self.rounds.map_or(plan.rounds, usize::from);
        plan.seconds = self.seconds.unwrap_or(plan.seconds);
        plan.peers = self.peers;
        plan.commit = option_env!("POLYLOCK_COMMIT").map(str::to_owned);
        Ok(plan)
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds")?;
    if (0.01..=3600.0).contains(&seconds) { Ok(seconds) } else { Err("between 0.01 and 3600".into()) }
}
