//! Tables for a terminal of 100 columns.

use std::fmt::Write as _;

use crate::record::{Kind, Record};

use super::finding::findings;
use super::section::{Column, Row, Section, contender_label, machine, sections, server_label, settings};
use super::text::{printable, shortened, wrapped};
use super::workload;

const WIDTH: usize = 100;
/// Between two columns.
const GAP: usize = 2;
/// A contender stands under its server.
const INDENT: usize = 2;

pub(super) fn table(record: &Record) -> String {
    let mut out = String::new();
    head(&mut out, record);
    let sections = sections(record);
    if sections.is_empty() {
        out.push_str("\nNothing was measured.\n");
        return out;
    }
    for section in &sections {
        workload_table(&mut out, record, section);
    }
    foot(&mut out, record);
    summary(&mut out, record);
    out
}

fn head(out: &mut String, record: &Record) {
    let commit =
        record.commit.as_deref().map_or_else(String::new, |it| format!(", commit {}", printable(it)));
    entry(out, "made", &format!("{}{commit}", printable(&record.made)));
    entry(out, "machine", &machine(record));
    entry(out, "settings", &settings(record));
    for (index, server) in record.servers.iter().enumerate() {
        let facts = [&server.version, &server.url, &server.durability, &server.topology];
        let facts: Vec<_> = facts.into_iter().map(|it| printable(it)).filter(|it| !it.is_empty()).collect();
        let name = server_label(&record.servers, index);
        entry(out, "server", &format!("{name}: {}", facts.join(", ")));
    }
}

/// A word, and beside it what there is to say.
fn entry(out: &mut String, word: &str, text: &str) {
    const TEXT: usize = 15;
    for (index, line) in wrapped(text, WIDTH - TEXT).iter().enumerate() {
        let word = if index == 0 { word } else { "" };
        let _ = writeln!(out, "{word:<TEXT$}{line}");
    }
}

fn workload_table(out: &mut String, record: &Record, section: &Section<'_>) {
    let _ = writeln!(out, "\n{}", workload::title(section.workload));
    for line in wrapped(workload::meaning(section.workload), WIDTH) {
        let _ = writeln!(out, "{line}");
    }
    out.push('\n');

    let widths = widths(section);
    let room = (WIDTH - INDENT).saturating_sub(widths.iter().map(|width| GAP + width).sum());
    let rows = section.groups.iter().flat_map(|group| &group.rows);
    let names = rows.map(|row| name(row).chars().count()).max().unwrap_or(0).min(room);

    for part in [|column: &Column| column.figure, |column: &Column| column.unit] {
        line(out, "", names, section.columns.iter().map(part).zip(&widths));
    }
    for group in &section.groups {
        let _ = writeln!(out, "{}", shortened(&server_label(&record.servers, group.server), WIDTH));
        for row in &group.rows {
            let name = shortened(&name(row), names);
            match &row.cells {
                Ok(cells) => line(out, &name, names, cells.iter().map(String::as_str).zip(&widths)),
                Err(words) => beside(out, &name, names, words),
            }
            if let Some(note) = &row.note {
                beside(out, "", names, note);
            }
        }
    }
}

/// Peers of one name differ in their version, which the foot tells.
fn name(row: &Row<'_>) -> String {
    printable(&row.measurement.contender.name)
}

fn widths(section: &Section<'_>) -> Vec<usize> {
    let rows =
        || section.groups.iter().flat_map(|group| &group.rows).filter_map(|row| row.cells.as_ref().ok());
    let widths = section.columns.iter().enumerate().map(|(index, column)| {
        let texts = rows().map(|cells| cells[index].as_str()).chain([column.figure, column.unit]);
        texts.map(|text| text.chars().count()).max().unwrap_or(0)
    });
    widths.collect()
}

fn line<'a>(out: &mut String, name: &str, names: usize, cells: impl Iterator<Item = (&'a str, &'a usize)>) {
    let mut line = format!("{:INDENT$}{name:<names$}", "");
    for (cell, width) in cells {
        let _ = write!(line, "{:GAP$}{cell:>width$}", "");
    }
    let _ = writeln!(out, "{}", line.trim_end());
}

/// Words instead of figures, as many lines as they need.
fn beside(out: &mut String, name: &str, names: usize, words: &str) {
    let left = INDENT + names + GAP;
    for (index, words) in wrapped(words, WIDTH - left).iter().enumerate() {
        let name = if index == 0 { name } else { "" };
        let line = format!("{:INDENT$}{name:<names$}{:GAP$}{words}", "", "");
        let _ = writeln!(out, "{}", line.trim_end());
    }
}

fn foot(out: &mut String, record: &Record) {
    out.push('\n');
    for (word, meaning) in workload::WORDS {
        entry(out, word, meaning);
    }
    let mut peers: Vec<_> = record
        .measurements
        .iter()
        .filter(|measurement| measurement.contender.kind == Kind::Peer)
        .map(|measurement| contender_label(&measurement.contender))
        .collect();
    peers.sort();
    peers.dedup();
    if !peers.is_empty() {
        entry(out, "peers", &peers.join(", "));
    }
}

/// Last, where a terminal stands when all is printed.
fn summary(out: &mut String, record: &Record) {
    let findings = findings(record);
    if findings.is_empty() {
        return;
    }
    out.push_str("\nIn short\n");
    for finding in findings {
        let mark = if finding.alarm { "WRONG: " } else { "" };
        for (index, line) in wrapped(&format!("{mark}{}", finding.text), WIDTH - 2).iter().enumerate() {
            let _ = writeln!(out, "{} {line}", if index == 0 { '-' } else { ' ' });
        }
    }
}
