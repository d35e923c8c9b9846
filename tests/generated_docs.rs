//! The tables of guarantees in the documents say what the code says. `cargo xtask docs` writes them.

use std::{fmt::Write, fs, path::Path};

use polylock::{Driver, Fairness, Fault, Guarantees, Scope, Takeover, Wakeup, drivers};

#[test]
fn the_table_of_guarantees_is_what_the_code_promises() {
    check("docs/guarantees.md", |_| page());
}

#[test]
fn the_table_in_the_readme_is_what_the_code_promises() {
    check("README.md", |text| between(text, &overview()));
}

/// Compares a document with what it should be, or writes it when `POLYLOCK_BLESS` is set.
fn check(path: &str, render: impl Fn(&str) -> String) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    let found = fs::read_to_string(&file).unwrap_or_default();
    let wanted = render(&found);
    if std::env::var_os("POLYLOCK_BLESS").is_some() {
        fs::write(&file, wanted).expect("the document can be written");
    } else {
        assert!(found == wanted, "{path} is stale; `cargo xtask docs` writes it:\n{wanted}");
    }
}

const BEGIN: &str = "<!-- guarantees: written by `cargo xtask docs` -->\n";
const END: &str = "<!-- end of guarantees -->\n";

fn between(text: &str, table: &str) -> String {
    let (before, rest) = text.split_once(BEGIN).expect("the mark before the table");
    let (_, after) = rest.split_once(END).expect("the mark after the table");
    format!("{before}{BEGIN}{table}{END}{after}")
}

/// One column for each backend.
fn overview() -> String {
    let list = |faults: polylock::Faults| {
        let names: Vec<_> = faults.iter().map(|fault| fault.to_string()).collect();
        if names.is_empty() { "no fault".into() } else { names.join(", ") }
    };
    let mut out = head("");
    row(&mut out, "URL", |driver, _| format!("`{}`", driver.example));
    row(&mut out, "contenders", |_, promised| contenders(promised).into());
    row(&mut out, "exclusion survives", |_, promised| list(promised.exclusion));
    row(&mut out, "tokens grow through", |_, promised| list(promised.fencing));
    row(&mut out, "a killed holder's lock is free", |_, promised| takeover(promised));
    row(&mut out, "a waiter", |_, promised| wakeup(promised).into());
    row(&mut out, "next, between processes", |_, promised| fairness(promised).into());
    out
}

fn page() -> String {
    let mut out = String::from(PREFACE);
    out += &overview();
    out += MATRIX;
    out += &head("fault");
    for fault in Fault::ALL {
        row(&mut out, &fault.to_string(), |_, promised| {
            match (promised.exclusion.contains(*fault), promised.fencing.contains(*fault)) {
                (true, true) => "exclusion, tokens",
                (true, false) => "exclusion",
                (false, true) => "tokens",
                (false, false) => "no promise",
            }
            .into()
        });
    }
    out + REMARKS
}

fn head(corner: &str) -> String {
    let mut out = String::new();
    row(&mut out, corner, |_, promised| promised.backend.into());
    row(&mut out, "---", |_, _| "---".into());
    out
}

fn row(out: &mut String, title: &str, cell: impl Fn(&Driver, &Guarantees) -> String) {
    let cells: Vec<_> = drivers().iter().map(|driver| cell(driver, &(driver.guarantees)())).collect();
    writeln!(out, "| {title} | {} |", cells.join(" | ")).expect("a string takes any text");
}

fn contenders(promised: &Guarantees) -> &'static str {
    match promised.scope {
        Scope::Process => "tasks of one process",
        Scope::Machine => "processes of one machine",
        Scope::Network => "machines of one network",
        _ => unreachable!("a scope without words"),
    }
}

fn takeover(promised: &Guarantees) -> String {
    match promised.takeover {
        Takeover::AtOnce => "at once".into(),
        Takeover::AfterLease if promised.expiry_lag.is_zero() => "when its lease ends".into(),
        Takeover::AfterLease => format!("at most {:?} after its lease ends", promised.expiry_lag),
        _ => unreachable!("a takeover without words"),
    }
}

fn wakeup(promised: &Guarantees) -> &'static str {
    match promised.wakeup {
        Wakeup::Push => "is told",
        Wakeup::Poll => "asks again",
        _ => unreachable!("a wake-up without words"),
    }
}

fn fairness(promised: &Guarantees) -> &'static str {
    match promised.fairness {
        Fairness::None => "whoever asks first",
        Fairness::FifoByClaim => "who claimed first",
        _ => unreachable!("a fairness without words"),
    }
}

const PREFACE: &str = "\
<!-- Written by `cargo xtask docs` from the code. A test fails while it is stale. -->

# Guarantees

Two promises are separate.

- *Exclusion*: no two guards of one name are held at the same moment, each by its own clock.
- *Tokens*: the fencing tokens of one name grow in the order of its grants.

No lock service can stop a client that passed its last check already. Exclusion says nothing about such a client;
only the fencing token does, where the store that is written to checks it. See [fencing.md](fencing.md).

A promise is listed with the faults that it survives. Each listed fault is made on purpose by a case of the
conformance suite, and each absent promise is tested for its absence. What a backend cannot know, because the server
does not tell its configuration, is not promised here. `Locks::guarantees()` and `polylock guarantees URL` say what one
server promises as it is configured.

";

const MATRIX: &str = "
## Fault by fault

";

const REMARKS: &str = "
- *Holder crash*: the holder's process is killed.
- *Holder pause*: it is stopped for longer than its lease, by SIGSTOP, by a long collection, by suspend. When it goes on,
  its first question about the lock is answered right. What it does before it asks is for the fencing token.
- *Partition*: the holder cannot reach the server, or gets no answers.
- *Server restart*: the server process is killed and started again with the data that it kept. Not a loss of power.
- *Failover*: another server takes over, perhaps without the last writes.
- *Server clock step*: the server's wall clock jumps, forwards or back.
- *Eviction*: the server drops keys because its memory is full.
- *Data loss*: the server's data is gone: flushed, or started again empty.

A `memory:` store lives and dies with its process, so that there is no fault for it to survive. Redis promises more on a
server that says it is durable (`appendonly`, `appendfsync`, `maxmemory-policy`), and then tells waiters of a release:
its [README](../lock-redis/README.md) says what depends on what. A directory that does not outlive a reboot promises no
growing tokens through one: see [lock-file](../lock-file/README.md).

All of it assumes that the clocks of holder and server run at the same rate, but for the option `drift` (1 % by
default), and that nobody writes the lock's keys or files by other means: who may write them can break locks.
";
