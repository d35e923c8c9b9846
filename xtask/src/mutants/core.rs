//! The faults that `lock-core` has behind `--cfg polylock_mutants`; `lock-core/mutants.txt` lists them.

use std::fs;

use super::trial::{Fault, Mutant};
use crate::{step::Result, workspace};

pub(crate) fn mutants() -> Result<Vec<Mutant>> {
    let list = fs::read_to_string(workspace::root().join("lock-core/mutants.txt"))?;
    let output = workspace::output()?.join("../mutants/core");
    let lines = list.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let [name, target, case] = line.split('\t').collect::<Vec<_>>()[..] else {
                return Err(format!("lock-core/mutants.txt: not name, test binary, test: {line:?}").into());
            };
            Ok(Mutant {
                kind: "core",
                package: "lock-core".into(),
                name: name.into(),
                target: target.into(),
                case: case.into(),
                fault: Fault::Core { output: output.clone() },
            })
        })
        .collect()
}
