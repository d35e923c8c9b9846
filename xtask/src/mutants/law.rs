//! The wrappers that break one law each, on every backend.

use super::trial::{Fault, Mutant};
use crate::{
    step::{Result, cargo, shown},
    workspace,
};

/// The suite's programs: `conformance` everywhere, and those for a backend's other servers.
const SUITES: [&str; 3] = ["conformance", "volatile", "oracle"];

pub(crate) fn mutants() -> Result<Vec<Mutant>> {
    let mut mutants = Vec::new();
    for package in workspace::fixtures()? {
        let tests = workspace::root().join(&package).join("tests");
        for suite in SUITES.iter().filter(|suite| tests.join(format!("{suite}.rs")).is_file()) {
            mutants.extend(of(&package, suite)?);
        }
    }
    Ok(mutants)
}

/// None of a suite whose server is not there.
fn of(package: &str, suite: &str) -> Result<Vec<Mutant>> {
    let mut list = cargo(&format!("test --package {package} --test {suite} -- --list-law-mutants"));
    let output = list.output()?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{} failed:\n{text}", shown(&list)).into());
    }
    let lines = String::from_utf8(output.stdout)?;
    let mutant = |(name, case): (&str, &str)| Mutant {
        kind: "law",
        package: package.into(),
        name: name.into(),
        target: suite.into(),
        case: case.trim().into(),
        fault: Fault::Law,
    };
    Ok(lines.lines().filter_map(|line| line.split_once('\t')).map(mutant).collect())
}
