//! The wrappers that break one law each, on every backend.

use super::trial::{Fault, Mutant};
use crate::{
    step::{Result, cargo, shown},
    workspace,
};

pub(crate) fn mutants() -> Result<Vec<Mutant>> {
    let mut mutants = Vec::new();
    for package in workspace::fixtures()? {
        let mut list = cargo(&format!("test --package {package} --test conformance -- --list-law-mutants"));
        let output = list.output()?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr);
            return Err(format!("{} failed:\n{text}", shown(&list)).into());
        }
        let lines = String::from_utf8(output.stdout)?;
        mutants.extend(lines.lines().filter_map(|line| line.split_once('\t')).map(|(name, case)| Mutant {
            kind: "law",
            package: package.clone(),
            name: name.into(),
            target: "conformance".into(),
            case: case.trim().into(),
            fault: Fault::Law,
        }));
    }
    Ok(mutants)
}
