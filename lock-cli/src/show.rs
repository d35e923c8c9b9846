//! What only looks: guarantees, keys, completions.

use std::{
    fmt::Display,
    io::{self, Write},
};

use clap_complete::Shell;
use polylock::{Fairness, Fault, Guarantees, Name, Scope, Takeover, Wakeup};
use serde_json::{Value, json};

use crate::{
    args,
    exit::{Failure, INTERNAL},
    location::Location,
};

/// `polylock guarantees [URL]`
pub(crate) fn guarantees(what: &args::Guarantees) -> Result<u8, Failure> {
    let columns: Vec<_> = if what.url.is_none() && what.url_file.is_none() {
        polylock::drivers().iter().map(|driver| (driver.name, (driver.guarantees)())).collect()
    } else {
        let server = args::Server { url: what.url.clone(), url_file: what.url_file.clone() };
        vec![wait_for(ask(&server))?]
    };
    print(|out| match what.json {
        true => json_lines(out, &columns),
        false => table(out, &columns),
    })
}

/// `polylock key NAME`
pub(crate) fn key(what: &args::Key) -> Result<u8, Failure> {
    let name = Name::new(&what.name)?;
    let location = wait_for(Location::find(&what.server))?;
    let key = (location.driver.key)(&location.url, &name)?;
    print(|out| writeln!(out, "{key}"))
}

/// `polylock completions SHELL`
pub(crate) fn completions(shell: Shell) -> Result<u8, Failure> {
    print(|out| {
        // The generator panics when it cannot write; a buffer always can be written to.
        let mut text = Vec::new();
        args::Args::complete(shell, &mut text);
        out.write_all(&text)
    })
}

async fn ask(server: &args::Server) -> Result<(&'static str, Guarantees), Failure> {
    let location = Location::find(server).await?;
    let backend = (location.driver.connect)(location.url).await?;
    Ok((location.driver.name, backend.guarantees()))
}

fn wait_for<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::internal("no runtime could be made", &error))?;
    let result = runtime.block_on(work);
    runtime.shutdown_background();
    result
}

fn print(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<u8, Failure> {
    let mut out = io::stdout().lock();
    match write(&mut out).and_then(|()| out.flush()) {
        Ok(()) => Ok(0),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(0),
        Err(error) => Err(Failure::new(INTERNAL, format!("stdout: {error}"))),
    }
}

type Column = (&'static str, Guarantees);

fn table(out: &mut dyn Write, columns: &[Column]) -> io::Result<()> {
    row(out, "", columns.iter().map(|(name, _)| *name))?;
    let all = || columns.iter().map(|(_, promised)| promised);
    row(out, "contenders within one", all().map(|g| scope(g.scope)))?;
    writeln!(out, "exclusion through a")?;
    for fault in Fault::ALL {
        row(out, format!("  {fault}"), all().map(|g| yes(g.exclusion.contains(*fault))))?;
    }
    writeln!(out, "growing tokens through a")?;
    for fault in Fault::ALL {
        row(out, format!("  {fault}"), all().map(|g| yes(g.fencing.contains(*fault))))?;
    }
    row(out, "killed holder's lock is free", all().map(|g| takeover(g.takeover)))?;
    row(out, "expiry lags by up to", all().map(|g| humantime::format_duration(g.expiry_lag)))?;
    row(out, "next in line", all().map(|g| fairness(g.fairness)))?;
    row(out, "waiters", all().map(|g| wakeup(g.wakeup)))
}

fn row(out: &mut dyn Write, title: impl Display, cells: impl Iterator<Item: Display>) -> io::Result<()> {
    let mut line = format!("{title:<30}");
    for cell in cells {
        line += &format!("  {:<15}", cell.to_string());
    }
    writeln!(out, "{}", line.trim_end())
}

/// One object a line.
fn json_lines(out: &mut dyn Write, columns: &[Column]) -> io::Result<()> {
    for (driver, promised) in columns {
        let survived =
            |faults: polylock::Faults| -> Vec<_> { faults.iter().map(|f| f.to_string()).collect() };
        let line: Value = json!({
            "driver": driver,
            "backend": promised.backend,
            "scope": scope(promised.scope),
            "exclusion": survived(promised.exclusion),
            "fencing": survived(promised.fencing),
            "takeover": takeover(promised.takeover),
            "expiry_lag_ms": u64::try_from(promised.expiry_lag.as_millis()).unwrap_or(u64::MAX),
            "fairness": fairness(promised.fairness),
            "wakeup": wakeup(promised.wakeup),
        });
        writeln!(out, "{line}")?;
    }
    Ok(())
}

fn yes(promised: bool) -> &'static str {
    if promised { "yes" } else { "-" }
}

fn scope(scope: Scope) -> &'static str {
    match scope {
        Scope::Process => "process",
        Scope::Machine => "machine",
        Scope::Network => "network",
        _ => "?",
    }
}

fn takeover(takeover: Takeover) -> &'static str {
    match takeover {
        Takeover::AtOnce => "at once",
        Takeover::AfterLease => "after its lease",
        _ => "?",
    }
}

fn fairness(fairness: Fairness) -> &'static str {
    match fairness {
        Fairness::None => "anyone",
        Fairness::FifoByClaim => "first come",
        _ => "?",
    }
}

fn wakeup(wakeup: Wakeup) -> &'static str {
    match wakeup {
        Wakeup::Push => "are told",
        Wakeup::Poll => "poll",
        _ => "?",
    }
}
