//! A page of the documentation, in GitHub's Markdown.

use std::fmt::Write as _;

use crate::record::Record;

use super::finding::findings;
use super::glance::glance;
use super::section::{Section, contender_label, machine, sections, server_label, settings};
use super::text::{printable, wrapped};
use super::workload;

/// Of prose; a table is as wide as it is.
const WIDTH: usize = 120;

pub(super) fn page(record: &Record) -> String {
    let mut out = String::from("# Benchmarks\n");
    paragraph(
        &mut out,
        "polylock on real servers, beside the bare driver and other lock libraries. The figures are of one machine and of \
         these settings. Before you rely on them, measure your own servers.",
    );
    out.push_str(
        "\n```sh\ncargo xtask bench       # makes this page, on servers that it starts itself\n\
         polylock bench URL…     # the same on servers of yours\n```\n",
    );
    let sections = sections(record);
    if sections.is_empty() {
        paragraph(&mut out, "Nothing was measured.");
    } else {
        summary(&mut out, record);
        words(&mut out);
    }
    for section in &sections {
        let _ = writeln!(out, "\n## {}", workload::title(section.workload));
        paragraph(&mut out, workload::meaning(section.workload));
        table(&mut out, record, section);
    }
    setting(&mut out, record);
    out
}

fn summary(out: &mut String, record: &Record) {
    let findings = findings(record);
    if findings.is_empty() {
        return;
    }
    out.push_str("\n## In short\n\n");
    for finding in findings {
        let mark = if finding.alarm { "**Wrong:** " } else { "" };
        item(out, &format!("{mark}{}", plain(&finding.text)));
    }
    let Some(glance) = glance(record) else { return };
    let _ = writeln!(out, "\n| polylock on | {} |", glance.heads.join(" | "));
    let _ = writeln!(out, "| --- |{}", " ---: |".repeat(glance.heads.len()));
    for (server, cells) in glance.rows {
        let _ = writeln!(out, "| {} | {} |", plain(&server), cells.join(" | "));
    }
}

fn words(out: &mut String) {
    out.push_str("\n## How to read it\n\n");
    for (word, meaning) in workload::WORDS {
        item(out, &format!("*{}*: {}.", plain(word), plain(meaning)));
    }
}

fn table(out: &mut String, record: &Record, section: &Section<'_>) {
    let noted = section.groups.iter().flat_map(|group| &group.rows).any(|row| row.note.is_some());
    let words = |part: String| if noted { part + " |" } else { part };
    let heads = section
        .columns
        .iter()
        .map(|column| format!(" {} {} |", column.figure, column.unit).replace("  ", " "));
    let _ = writeln!(out, "\n| server | contender |{}", words(heads.collect::<String>()));
    let _ = writeln!(
        out,
        "| --- | --- |{}",
        words(" ---: |".repeat(section.columns.len()) + if noted { " ---" } else { "" })
    );
    for group in &section.groups {
        let server = plain(&server_label(&record.servers, group.server));
        for (index, row) in group.rows.iter().enumerate() {
            let server = if index == 0 { server.as_str() } else { "" };
            let cells = match &row.cells {
                Ok(cells) => cells.iter().map(|cell| format!(" {} |", plain(cell))).collect(),
                Err(words) => format!(" {} |{}", plain(words), " |".repeat(section.columns.len() - 1)),
            };
            let note = row.note.as_deref().map(|note| format!(" {}", plain(note))).unwrap_or_default();
            let name = plain(&contender_label(&row.measurement.contender));
            let _ = writeln!(out, "| {server} | {name} |{}", words(cells + &note));
        }
    }
}

fn setting(out: &mut String, record: &Record) {
    out.push_str("\n## Where, and how\n\n");
    item(out, &format!("Machine: {}", plain(&machine(record))));
    item(out, &format!("Settings: {}", plain(&settings(record))));
    let commit = record.commit.as_deref().map_or_else(|| "unknown".to_owned(), code);
    item(out, &format!("Made: {}, commit {commit}", plain(&printable(&record.made))));
    if record.servers.is_empty() {
        return;
    }
    out.push_str(
        "\n| server | version | a write survives | servers | URL |\n| --- | --- | --- | --- | --- |\n",
    );
    for (index, server) in record.servers.iter().enumerate() {
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} |",
            plain(&server_label(&record.servers, index)),
            plain(&printable(&server.version)),
            code(&server.durability),
            plain(&printable(&server.topology)),
            code(&server.url)
        );
    }
}

fn paragraph(out: &mut String, text: &str) {
    out.push('\n');
    for line in wrapped(text, WIDTH) {
        let _ = writeln!(out, "{}", begun(&line));
    }
}

fn item(out: &mut String, text: &str) {
    for (index, line) in wrapped(text, WIDTH - 3).iter().enumerate() {
        let _ = writeln!(out, "{}{}", if index == 0 { "- " } else { "  " }, begun(line));
    }
}

/// A line whose first character begins no heading, list or rule.
fn begun(line: &str) -> String {
    let escape = if line.starts_with(['#', '-', '+', '=']) { "\\" } else { "" };
    format!("{escape}{line}")
}

/// Text that is no markup, whatever it contains.
fn plain(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for symbol in text.chars() {
        if matches!(symbol, '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '|' | '~' | '&' | '$') {
            escaped.push('\\');
        }
        escaped.push(symbol);
    }
    escaped
}

/// Text as it is typed. A fence of more backticks than the text has in a row holds whatever it contains.
fn code(text: &str) -> String {
    let text = printable(text).replace('|', r"\|");
    if text.is_empty() {
        return text;
    }
    let longest = text.split(|symbol| symbol != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest + 1);
    let space = if text.starts_with('`') || text.ends_with('`') { " " } else { "" };
    format!("{fence}{space}{text}{space}{fence}")
}
