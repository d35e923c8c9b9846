//! One deliberate fault: the case passes without it and fails with it, or the case proves nothing.

use std::{
    fmt, fs,
    path::PathBuf,
    process::{Command, Output},
};

use crate::step::{Result, cargo, shown};

pub(crate) struct Mutant {
    pub(crate) kind: &'static str,
    pub(crate) package: String,
    pub(crate) name: String,
    /// The test target that has the case: `conformance`, or `lib` for unit tests.
    pub(crate) target: String,
    /// The case's full name.
    pub(crate) case: String,
    pub(crate) fault: Fault,
}

/// How the fault gets into the program.
pub(crate) enum Fault {
    /// A variable that the suite reads.
    Law,
    /// A variable that `lock-core` reads, in a build with the faults in it.
    Core { output: PathBuf },
    /// Files put over those of a copy of the tree, which is built with output of its own.
    Patch { tree: PathBuf, output: PathBuf, patched: Vec<Patched> },
}

/// One file of the tree, as it is and as the fault has it.
pub(crate) struct Patched {
    pub(crate) path: PathBuf,
    pub(crate) sound: String,
    pub(crate) faulty: String,
}

#[derive(PartialEq)]
pub(crate) enum Verdict {
    /// Passes without the fault, fails with it.
    Caught,
    /// Passes with the fault.
    Missed,
    /// Says nothing: why.
    Void(String),
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Caught => f.write_str("caught"),
            Self::Missed => f.write_str("MISSED"),
            Self::Void(why) => write!(f, "VOID: {why}"),
        }
    }
}

impl Mutant {
    pub(crate) fn line(&self) -> String {
        let Self { kind, package, target, name, case, .. } = self;
        format!("{kind} {package} {target} {name}: {case}")
    }

    pub(crate) fn judge(&self) -> Result<Verdict> {
        let Some(sound) = self.case_with(false)? else {
            return Ok(Verdict::Void("the tests do not build".into()));
        };
        if !sound.status.success() {
            return Ok(Verdict::Void("the case fails without the fault too".into()));
        }
        if !String::from_utf8_lossy(&sound.stdout).contains("running 1 test\n") {
            return Ok(Verdict::Void("there is no such case".into()));
        }
        Ok(match self.case_with(true)? {
            None => Verdict::Void("the fault does not build".into()),
            Some(output) if output.status.success() => Verdict::Missed,
            // A case that hangs is ended by its limit, and has failed too.
            Some(_) => Verdict::Caught,
        })
    }

    /// Runs the case, with the fault or without; `None` if it does not build.
    fn case_with(&self, fault: bool) -> Result<Option<Output>> {
        let patched = match &self.fault {
            Fault::Patch { patched, .. } if fault => &patched[..],
            _ => &[],
        };
        for file in patched {
            fs::write(&file.path, &file.faulty)?;
        }
        let output = self.build_and_run(fault);
        for file in patched {
            fs::write(&file.path, &file.sound)?;
        }
        output
    }

    fn build_and_run(&self, fault: bool) -> Result<Option<Output>> {
        let mut build = self.cargo_test(fault);
        let built = build.arg("--no-run").output().map_err(|e| format!("{}: {e}", shown(&build)))?;
        if !built.status.success() {
            eprintln!("\n{}", String::from_utf8_lossy(&built.stderr));
            return Ok(None);
        }
        let mut run = self.cargo_test(fault);
        let mut run = limited(run.args(["--", "--exact", &self.case]));
        Ok(Some(run.output().map_err(|e| format!("{}: {e}", shown(&run)))?))
    }

    fn cargo_test(&self, fault: bool) -> Command {
        let Self { package, name, target, .. } = self;
        let target = if target == "lib" { "--lib".into() } else { format!("--test {target}") };
        let mut command = cargo(&format!("test --package {package} {target}"));
        match &self.fault {
            Fault::Law if fault => _ = command.env("POLYLOCK_LAW_MUTANT", name),
            Fault::Law => {}
            Fault::Core { output } => {
                command.env("RUSTFLAGS", "--cfg polylock_mutants").env("CARGO_TARGET_DIR", output);
                if fault {
                    command.env("POLYLOCK_MUTANT", name);
                }
            }
            Fault::Patch { tree, output, .. } => {
                command.current_dir(tree).env("CARGO_TARGET_DIR", output);
            }
        }
        command
    }
}

/// The same command, ended with all that it started if it hangs.
fn limited(command: &Command) -> Command {
    let mut limited = Command::new("timeout");
    limited.args(["--kill-after=5", "120"]).arg(command.get_program()).args(command.get_args());
    limited.envs(command.get_envs().filter_map(|(key, value)| Some((key, value?))));
    if let Some(folder) = command.get_current_dir() {
        limited.current_dir(folder);
    }
    limited
}
