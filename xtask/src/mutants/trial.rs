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
        format!("{} {} {}: {}", self.kind, self.package, self.name, self.case)
    }

    pub(crate) fn judge(&self) -> Result<Verdict> {
        let sound = self.case_with(false)?;
        if !sound.status.success() {
            return Ok(Verdict::Void("the case fails without the fault too".into()));
        }
        if !String::from_utf8_lossy(&sound.stdout).contains("running 1 test\n") {
            return Ok(Verdict::Void("there is no such case".into()));
        }
        let faulty = self.case_with(true)?;
        if faulty.status.success() {
            return Ok(Verdict::Missed);
        }
        // A failed case prints its result; a failed build does not. A case that hangs is stopped, and
        // that is a failure of the case.
        let ran = String::from_utf8_lossy(&faulty.stdout).contains("running 1 test\n");
        Ok(if ran { Verdict::Caught } else { Verdict::Void("the fault does not build".into()) })
    }

    fn case_with(&self, fault: bool) -> Result<Output> {
        let Self { package, name, target, case, .. } = self;
        let target = if target == "lib" { "--lib".into() } else { format!("--test {target}") };
        let mut command = cargo(&format!("test --package {package} {target} -- --exact"));
        command.arg(case);
        let mut written = &[][..];
        match &self.fault {
            Fault::Law if fault => _ = command.env("POLYLOCK_LAW_MUTANT", name),
            Fault::Law => {}
            Fault::Core { output } => {
                command.env("RUSTFLAGS", "--cfg polylock_mutants").env("CARGO_TARGET_DIR", output);
                if fault {
                    command.env("POLYLOCK_MUTANT", name);
                }
            }
            Fault::Patch { tree, output, patched } => {
                command.current_dir(tree).env("CARGO_TARGET_DIR", output);
                written = if fault { patched } else { written };
            }
        }
        for file in written {
            fs::write(&file.path, &file.faulty)?;
        }
        let outcome = limited(&command).output().map_err(|e| format!("{}: {e}", shown(&command)));
        for file in written {
            fs::write(&file.path, &file.sound)?;
        }
        Ok(outcome?)
    }
}

/// The same command, ended with all that it started if it hangs.
fn limited(command: &Command) -> Command {
    let mut limited = Command::new("timeout");
    limited.args(["--kill-after=5", "600"]).arg(command.get_program()).args(command.get_args());
    limited.envs(command.get_envs().filter_map(|(key, value)| Some((key, value?))));
    if let Some(folder) = command.get_current_dir() {
        limited.current_dir(folder);
    }
    limited
}
