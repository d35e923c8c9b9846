//! `cargo xtask mutants`: each deliberate fault, against the case that is named for it.
//!
//! - *Law mutants* are wrappers round a backend, inside the conformance suite: they need no build of
//!   their own and run on every backend.
//! - *Core mutants* are faults in `lock-core` behind `--cfg polylock_mutants`, chosen by a variable.
//! - *Backend mutants* are patches in a backend's `mutants/`, applied to a copy of the tree.

mod backend;
mod core;
mod law;
mod trial;

use std::io::{self, Write};

use crate::step::Result;
use trial::{Mutant, Verdict};

pub(crate) fn run(filter: &str) -> Result {
    let mut table = Vec::new();
    let mut judge = |mutants: Vec<Mutant>| -> Result {
        for mutant in mutants.into_iter().filter(|mutant| mutant.line().contains(filter)) {
            eprint!("{} … ", mutant.line());
            let verdict = mutant.judge()?;
            eprintln!("{verdict}");
            table.push((mutant, verdict));
        }
        Ok(())
    };
    judge(law::mutants()?)?;
    judge(core::mutants()?)?;
    judge(backend::mutants()?)?;
    report(&table)
}

fn report(table: &[(Mutant, Verdict)]) -> Result {
    let mut out = io::stdout().lock();
    writeln!(out, "\n| verdict | kind | crate | tests | fault | the case that must fail |")?;
    writeln!(out, "| --- | --- | --- | --- | --- | --- |")?;
    for (mutant, verdict) in table {
        let Mutant { kind, package, target, name, case, .. } = mutant;
        writeln!(out, "| {verdict} | {kind} | {package} | {target} | {name} | {case} |")?;
    }
    let caught = table.iter().filter(|(_, verdict)| *verdict == Verdict::Caught).count();
    writeln!(out, "\n{caught} of {} caught", table.len())?;
    match table.len() {
        0 => Err("there is no such mutant".into()),
        all if all == caught => Ok(()),
        all => Err(format!("{} of {all} faults were not caught", all - caught).into()),
    }
}
