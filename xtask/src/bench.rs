//! `cargo xtask bench`: the figures in the documentation.

use std::{fs, path::PathBuf, process::Command};

use crate::{
    servers,
    step::{self, Result, cargo},
    workspace,
};

pub(crate) fn run(
    quick: bool,
    json: Option<PathBuf>,
    rounds: Option<u16>,
    seconds: Option<f64>,
    backends: &[String],
) -> Result {
    let places = servers::install()?;
    let mut bench = cargo("bench -p lock-bench --features all,peers --bench suite --");
    bench.args(backends).envs(places);
    if let Some(json) = json {
        // The benchmark runs in another folder.
        bench.arg(format!("--json={}", std::path::absolute(json)?.display()));
    }
    if let Some(rounds) = rounds {
        bench.arg(format!("--rounds={rounds}"));
    }
    if let Some(seconds) = seconds {
        bench.arg(format!("--seconds={seconds}"));
    }
    if let Some(commit) = commit() {
        bench.env("POLYLOCK_COMMIT", commit);
    }
    let documented = !quick && backends.is_empty();
    if quick {
        bench.arg("--quick");
    } else if documented {
        bench.arg("--docs");
    }
    let measured = step::run("benchmark", &mut bench);
    if documented {
        // It has written the page even if a promise was not kept.
        let page = workspace::root().join("docs/benchmarks.md");
        let aims = fs::read_to_string(workspace::root().join("bench/aims.md"))?;
        fs::write(&page, with_aims(&fs::read_to_string(&page)?, &aims))?;
    }
    measured
}

/// The page with what was aimed at as its last section, which it may have already.
fn with_aims(page: &str, aims: &str) -> String {
    const HEAD: &str = "\n## What was aimed at\n";
    let page = page.split(HEAD).next().unwrap_or_default();
    format!("{page}{HEAD}\n{aims}")
}

/// The commit, and whether the files differ from it.
fn commit() -> Option<String> {
    let mut git = Command::new("git");
    git.args(["describe", "--always", "--dirty", "--abbrev=12"]).current_dir(workspace::root());
    let output = git.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_ends_with_what_was_aimed_at_once() {
        let page = with_aims("# Benchmarks\n\ntext\n", "| old |\n");
        assert_eq!(page, "# Benchmarks\n\ntext\n\n## What was aimed at\n\n| old |\n");
        assert_eq!(with_aims(&page, "| new |\n"), page.replace("old", "new"));
        let aims = fs::read_to_string(workspace::root().join("bench/aims.md")).unwrap();
        assert!(aims.starts_with("| figure | Redis | etcd | ZooKeeper | MariaDB |\n"), "{aims}");
        assert!(!aims.contains("\n#") && aims.ends_with('\n'), "{aims}");
    }
}
