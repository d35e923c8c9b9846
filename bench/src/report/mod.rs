//! The reports of a record. A placeholder: it lists what there is.

use std::fmt::Write;

use crate::record::Record;

/// For a terminal.
#[must_use]
pub fn table(record: &Record) -> String {
    let mut text = String::new();
    for measurement in &record.measurements {
        let server = &record.servers[measurement.server];
        let mut outcome = serde_json::to_string(&measurement.outcome).unwrap_or_default();
        while let Some(begin) = outcome.find(",\"points\":[") {
            let end = outcome[begin..].find("]]").map_or(outcome.len(), |end| begin + end + 2);
            outcome.replace_range(begin..end, "");
        }
        let _ = writeln!(
            text,
            "{} {} | {:?} | {} | {outcome}",
            server.backend, server.version, measurement.workload, measurement.contender.name
        );
    }
    text
}

/// For a browser.
#[must_use]
pub fn html(record: &Record) -> String {
    format!("<pre>{}</pre>", table(record))
}

/// For the documentation.
#[must_use]
pub fn markdown(record: &Record) -> String {
    format!("```text\n{}```\n", table(record))
}
