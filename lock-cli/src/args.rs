//! The arguments.

use std::{ffi::OsString, io::Write, path::PathBuf, sync::Arc, time::Duration};

use clap::{ArgAction, CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use polylock::Options;

use crate::{bench::Bench, exit};

const RUN_HELP: &str = "\
COMMAND runs in a process group of its own, with POLYLOCK_NAME and POLYLOCK_FENCING_TOKEN in its \
environment. TERM, INT, HUP, QUIT, USR1, USR2, WINCH, TSTP and CONT are passed on to the group.

When the lock is lost, the group gets TERM, and KILL after three quarters of the grace, before anyone else \
can hold the lock. When `polylock run` itself is killed, the kernel kills COMMAND, and a helper its group.

What no lock can stop is work that goes on unseen: on a machine that was cut off or suspended, in a group \
that was stopped together with polylock and continued later, in a process that left the group (setsid) or \
changed its user (sudo). Send POLYLOCK_FENCING_TOKEN along with every write, and let the store refuse a \
smaller one than the largest it has seen.

A lock that turns out to be lost when it is released makes the exit code of a COMMAND that ended with 0 the \
code of a lost lock, because COMMAND may have run without it. Every other code of COMMAND's is kept.

What COMMAND leaves running in the background when it ends by itself is not waited for, and no longer under \
the lock. When it ended on a signal that was passed on, the rest of its group has the grace to end too, and \
is killed then.";

/// Locks for commands, on a server or in a directory of this machine.
#[derive(Debug, Parser)]
#[command(name = "polylock", version, max_term_width = 100)]
pub(crate) struct Args {
    /// Tell what happens, on stderr; -vv and -vvv tell more
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub(crate) verbose: u8,
    #[command(subcommand)]
    pub(crate) action: Action,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Action {
    /// Run a command while holding a lock
    #[command(after_long_help = format!("{}\n{RUN_HELP}", exit::help()))]
    Run(Run),
    /// Print what a server promises, or what every backend of this build does
    Guarantees(Guarantees),
    /// Print the key, file or row that stands for a name; nothing is asked of the server
    Key(Key),
    /// Measure what locks cost on servers of your own, to choose one
    Bench(Bench),
    /// Print completions for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct Run {
    /// What to lock: 1 to 255 bytes of UTF-8 without control characters
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) server: Server,
    /// How long the lock outlives polylock at the least, such as 30s; it is renewed every third of it
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    ttl: Option<Duration>,
    /// How long COMMAND has to stop after a loss [default: a tenth of the ttl]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    grace: Option<Duration>,
    /// Stop COMMAND after so long, as if the lock was lost
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    max_hold: Option<Duration>,
    /// Who holds the lock, for people who look at the server [default: host:pid]
    #[arg(long)]
    label: Option<Arc<str>>,
    /// Wait for the lock, for so long or without end (which is the default)
    #[arg(long, value_name = "DURATION", num_args = 0..=1, require_equals = true, value_parser = duration)]
    #[arg(conflicts_with = "no_wait")]
    wait: Option<Option<Duration>>,
    /// Give up at once if another holds the lock
    #[arg(short, long)]
    no_wait: bool,
    /// The exit code when another holds the lock, instead of 75 and 76
    #[arg(short = 'E', long, value_name = "CODE")]
    pub(crate) conflict_exit_code: Option<u8>,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// Where the locks are.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Server {
    /// Where the locks are, such as redis://127.0.0.1 or file:///var/lib/locks
    ///
    /// Without --url and --url-file it is POLYLOCK_URL, else the URL in the file POLYLOCK_URL_FILE, else the
    /// directory $XDG_STATE_HOME/polylock (~/.local/state/polylock). Other users of this machine see
    /// arguments: a URL with a password belongs into the environment or a file.
    ///
    /// etcd:, zookeeper: and mysql: are in builds with the Cargo feature of that name, or with `all`:
    /// cargo install lock-cli --features all. The client of etcd needs protoc to build.
    #[arg(long)]
    pub(crate) url: Option<String>,
    /// A file that holds the URL
    #[arg(long, value_name = "PATH", conflicts_with = "url")]
    pub(crate) url_file: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Guarantees {
    /// The server to ask; without one, all backends of this build are listed
    #[arg(conflicts_with = "url_file")]
    pub(crate) url: Option<String>,
    /// A file that holds the URL
    #[arg(long, value_name = "PATH")]
    pub(crate) url_file: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Key {
    /// The lock's name
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// For how long to wait for a busy lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    None,
    Within(Duration),
    Endless,
}

impl Args {
    /// Reads the command line; or prints help, the version or what is wrong, and gives the exit code.
    pub(crate) fn read() -> Result<Self, u8> {
        Self::try_parse().map_err(|error| {
            // Help goes to stdout, which may be closed; there is nobody to tell then.
            let _ = error.print();
            let action = std::env::args_os().skip(1).find(|word| !word.to_string_lossy().starts_with('-'));
            match (error.use_stderr(), action) {
                (false, _) => 0,
                (true, Some(action)) if action == "bench" => exit::BENCH_USAGE,
                (true, _) => exit::USAGE,
            }
        })
    }

    /// Writes completions for a shell.
    pub(crate) fn complete(shell: Shell, out: &mut dyn Write) {
        clap_complete::generate(shell, &mut Self::command(), "polylock", out);
    }
}

impl Run {
    /// The options of the URL, with the flags put over them.
    pub(crate) fn options(&self, mut options: Options) -> Options {
        if let Some(ttl) = self.ttl {
            options = options.with_ttl(ttl);
        }
        if let Some(grace) = self.grace {
            options = options.with_grace(grace);
        }
        if let Some(max_hold) = self.max_hold {
            options = options.with_max_hold(max_hold);
        }
        if let Some(label) = &self.label {
            options = options.with_label(label.clone());
        }
        options
    }

    pub(crate) fn patience(&self) -> Patience {
        match (self.no_wait, self.wait) {
            (true, _) => Patience::None,
            (false, Some(Some(duration))) => Patience::Within(duration),
            (false, _) => Patience::Endless,
        }
    }
}

/// `30s`, `1m 30s`, or a number of seconds as flock(1) takes it.
fn duration(text: &str) -> Result<Duration, String> {
    if let Ok(seconds) = text.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string());
    }
    humantime::parse_duration(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(args: &[&str]) -> Run {
        match Args::try_parse_from([&["polylock", "run", "n"], args].concat()).unwrap().action {
            Action::Run(run) => run,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_definition_is_sound() {
        Args::command().debug_assert();
    }

    #[test]
    fn waiting_is_endless_bounded_or_not_at_all() {
        let patience = |args: &[&str]| run(&[args, &["--", "true"]].concat()).patience();
        assert_eq!(patience(&[]), Patience::Endless);
        assert_eq!(patience(&["--wait"]), Patience::Endless);
        assert_eq!(patience(&["--wait=1m 30s"]), Patience::Within(Duration::from_secs(90)));
        assert_eq!(patience(&["--wait=1.5"]), Patience::Within(Duration::from_millis(1500)));
        assert_eq!(patience(&["--no-wait"]), Patience::None);
        for bad in [&["--wait", "--no-wait"][..], &["--wait=-1"], &["--wait=soon"], &["--wait=NaN"]] {
            let args = [&["polylock", "run", "n"], bad, &["--", "true"]].concat();
            assert!(Args::try_parse_from(args).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn flags_win_over_the_urls_options() {
        let of_url = Options::default().with_ttl(Duration::from_secs(5)).with_grace(Duration::from_secs(1));
        let options = run(&["--ttl", "9s", "--", "true"]).options(of_url);
        assert_eq!(options.ttl, Duration::from_secs(9));
        assert_eq!(options.grace, Some(Duration::from_secs(1)));
    }

    #[test]
    fn what_follows_the_dashes_is_the_commands_alone() {
        let words = ["printf", "-v", "--help", "--", "--url", ""];
        let run = run(&[&["--"], &words[..]].concat());
        assert_eq!(run.command, words.map(OsString::from));
        assert_eq!(run.server.url, None);
    }
}
