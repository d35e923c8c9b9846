//! One file for a browser: plots, and the table behind each. It loads nothing and runs nothing.

mod figures;
mod metric;
mod palette;
mod plot;
mod scale;

use std::fmt::Write as _;

use crate::record::Record;

use super::finding::findings;
use super::glance::glance;
use super::number::time;
use super::section::{Section, contender_label, machine, sections, server_label, settings};
use super::text::printable;
use super::workload;

use figures::{Figure, Panel, Ratios};

pub(super) fn page(record: &Record) -> String {
    let sections = sections(record);
    let mut out = String::new();
    let _ = write!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <title>polylock benchmark</title>\n<style>\n{}{}}}\n</style>\n</head>\n<body>\n",
        include_str!("page.css"),
        palette::dark_rules()
    );
    let ratios = figures::ratios(record, &sections);
    head(&mut out, record, &sections, &ratios);
    out.push_str("<main>\n");
    if sections.is_empty() {
        out.push_str("<p>Nothing was measured.</p>\n");
    } else {
        summary(&mut out, record);
        for section in &sections {
            workload_section(&mut out, record, section);
        }
        against_others(&mut out, &ratios);
        words(&mut out);
    }
    setting(&mut out, record);
    out.push_str("</main>\n</body>\n</html>\n");
    out
}

/// Text for an element or an attribute, whatever it contains.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for symbol in printable(text).chars() {
        match symbol {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            plain => escaped.push(plain),
        }
    }
    escaped
}

fn head(out: &mut String, record: &Record, sections: &[Section<'_>], ratios: &Ratios) {
    let _ = write!(
        out,
        "<header>\n<h1>polylock benchmark</h1>\n<p class=\"faint\">{}. {}.</p>\n",
        escape(&record.made),
        escape(&machine(record))
    );
    if !sections.is_empty() {
        out.push_str("<nav aria-label=\"Workloads\"><ul>\n");
        for section in sections {
            let (anchor, title) = (anchor(section), workload::title(section.workload));
            let _ = writeln!(out, "<li><a href=\"#{anchor}\">{title}</a></li>");
        }
        if !ratios.rows.is_empty() {
            out.push_str("<li><a href=\"#ratios\">Against others</a></li>\n");
        }
        out.push_str("<li><a href=\"#setting\">Where, and how</a></li>\n</ul></nav>\n");
    }
    out.push_str("</header>\n");
}

fn anchor(section: &Section<'_>) -> String {
    workload::title(section.workload).to_lowercase().replace([' ', ','], "-")
}

fn summary(out: &mut String, record: &Record) {
    let findings = findings(record);
    if findings.is_empty() {
        return;
    }
    out.push_str("<section class=\"short\">\n<h2>In short</h2>\n<ul>\n");
    for finding in findings {
        let class = if finding.alarm { " class=\"alarm\"" } else { "" };
        let _ = writeln!(out, "<li{class}>{}</li>", escape(&finding.text));
    }
    out.push_str("</ul>\n");
    if let Some(glance) = glance(record) {
        out.push_str("<div class=\"scroll\" tabindex=\"0\">\n<table class=\"glance\">\n<thead><tr><th scope=\"col\">polylock on</th>");
        for head in glance.heads {
            let _ = write!(out, "<th scope=\"col\">{}</th>", escape(head));
        }
        out.push_str("</tr></thead>\n<tbody>\n");
        for (server, cells) in glance.rows {
            let _ = write!(out, "<tr><th scope=\"row\">{}</th>", escape(&server));
            for cell in cells {
                let _ = write!(out, "<td>{}</td>", escape(&cell));
            }
            out.push_str("</tr>\n");
        }
        out.push_str("</tbody>\n</table>\n</div>\n");
    }
    out.push_str("</section>\n");
}

fn workload_section(out: &mut String, record: &Record, section: &Section<'_>) {
    let _ = write!(
        out,
        "<section id=\"{}\">\n<h2>{}</h2>\n<p>{}</p>\n",
        anchor(section),
        workload::title(section.workload),
        escape(workload::meaning(section.workload))
    );
    figure(out, &figures::comparison(record, section));
    let contest = figures::contest(record, section);
    if !contest.servers.is_empty() {
        out.push_str("<details>\n<summary>Beside raw and other libraries, a server at a time</summary>\n");
        legend(out, &contest.legend);
        for (server, plots) in &contest.servers {
            let _ = writeln!(out, "<h3>{}</h3>", escape(server));
            panels(out, plots);
        }
        out.push_str("</details>\n");
    }
    out.push_str("<details>\n<summary>The figures as a table</summary>\n");
    table(out, record, section);
    out.push_str("</details>\n</section>\n");
}

fn against_others(out: &mut String, ratios: &Ratios) {
    if ratios.rows.is_empty() {
        return;
    }
    out.push_str("<section id=\"ratios\">\n<h2>Against others</h2>\n");
    out.push_str(
        "<p>What polylock is of the same statements on the bare driver, and for hand-overs of the best other lock, \
         round by round. The dot is the median, the line goes from the lowest to the highest round.</p>\n",
    );
    figure(out, &ratios.figure);
    out.push_str("<details>\n<summary>The figures as a table</summary>\n<div class=\"scroll\" tabindex=\"0\">\n<table>\n");
    out.push_str(
        "<thead><tr><th scope=\"col\">workload</th><th scope=\"col\" class=\"words\">contender</th>",
    );
    out.push_str("<th scope=\"col\">ratio</th></tr></thead>\n<tbody>\n");
    for (workload, contender, ratio) in &ratios.rows {
        let _ = writeln!(
            out,
            "<tr><th scope=\"row\">{workload}</th><td class=\"words\">{}</td><td>{ratio}</td></tr>",
            escape(contender)
        );
    }
    out.push_str("</tbody>\n</table>\n</div>\n</details>\n");
    out.push_str("</section>\n");
}

fn figure(out: &mut String, figure: &Figure) {
    if !figure.panels.is_empty() {
        legend(out, &figure.legend);
        panels(out, &figure.panels);
    }
}

fn legend(out: &mut String, legend: &[(String, String)]) {
    out.push_str("<ul class=\"legend\" aria-label=\"Legend\">\n");
    for (sample, meaning) in legend {
        let _ = writeln!(out, "<li>{sample}{}</li>", escape(meaning));
    }
    out.push_str("</ul>\n");
}

fn panels(out: &mut String, panels: &[Panel]) {
    out.push_str("<div class=\"panels\">\n");
    for Panel { title, reading, svg } in panels {
        let _ = writeln!(
            out,
            "<figure>\n<figcaption><strong>{title}</strong><span>{reading}</span></figcaption>\n{svg}</figure>"
        );
    }
    out.push_str("</div>\n");
}

fn table(out: &mut String, record: &Record, section: &Section<'_>) {
    let noted = section.groups.iter().flat_map(|group| &group.rows).any(|row| row.note.is_some());
    let width = section.columns.len() + usize::from(noted);
    out.push_str(
        "<div class=\"scroll\" tabindex=\"0\">\n<table>\n<thead><tr><th scope=\"col\">contender</th>",
    );
    for column in section.columns {
        let _ = write!(out, "<th scope=\"col\">{}<br/>{}</th>", column.figure, column.unit);
    }
    out.push_str(if noted {
        "<th scope=\"col\" class=\"words\">note</th></tr></thead>\n"
    } else {
        "</tr></thead>\n"
    });
    for group in &section.groups {
        let server = escape(&server_label(&record.servers, group.server));
        let _ =
            writeln!(out, "<tbody>\n<tr><th scope=\"rowgroup\" colspan=\"{}\">{server}</th></tr>", width + 1);
        for row in &group.rows {
            let name = escape(&contender_label(&row.measurement.contender));
            let _ = write!(out, "<tr><th scope=\"row\">{name}</th>");
            match &row.cells {
                Ok(cells) => {
                    for cell in cells {
                        let _ = write!(out, "<td>{}</td>", escape(cell));
                    }
                    if noted {
                        let note = row.note.as_deref().unwrap_or_default();
                        let _ = write!(out, "<td class=\"words\">{}</td>", escape(note));
                    }
                }
                Err(words) => {
                    let _ = write!(out, "<td class=\"words\" colspan=\"{width}\">{}</td>", escape(words));
                }
            }
            out.push_str("</tr>\n");
        }
        out.push_str("</tbody>\n");
    }
    out.push_str("</table>\n</div>\n");
}

fn words(out: &mut String) {
    out.push_str("<section>\n<h2>Words</h2>\n<dl>\n");
    for (word, meaning) in workload::WORDS {
        let _ = writeln!(out, "<dt>{}</dt><dd>{}</dd>", escape(word), escape(meaning));
    }
    out.push_str("</dl>\n</section>\n");
}

fn setting(out: &mut String, record: &Record) {
    let commit = record.commit.as_deref().unwrap_or("unknown");
    let _ = write!(
        out,
        "<section id=\"setting\">\n<h2>Where, and how</h2>\n<dl>\n<dt>Machine</dt><dd>{}</dd>\n\
         <dt>Settings</dt><dd>{}</dd>\n<dt>Made</dt><dd>{}, commit {}</dd>\n</dl>\n",
        escape(&machine(record)),
        escape(&settings(record)),
        escape(&record.made),
        escape(commit)
    );
    if !record.servers.is_empty() {
        out.push_str("<div class=\"scroll\" tabindex=\"0\">\n<table>\n<thead><tr>");
        for head in ["server", "version", "a write survives", "servers", "URL"] {
            let _ = write!(out, "<th scope=\"col\" class=\"words\">{head}</th>");
        }
        out.push_str("</tr></thead>\n<tbody>\n");
        for (index, server) in record.servers.iter().enumerate() {
            let _ =
                write!(out, "<tr><th scope=\"row\">{}</th>", escape(&server_label(&record.servers, index)));
            for text in [&server.version, &server.durability, &server.topology, &server.url] {
                let _ = write!(out, "<td class=\"words\">{}</td>", escape(text));
            }
            out.push_str("</tr>\n");
        }
        out.push_str("</tbody>\n</table>\n</div>\n");
    }
    out.push_str("</section>\n");
}
