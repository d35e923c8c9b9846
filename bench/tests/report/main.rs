//! What a reader finds in the reports of a record, whatever is in it.

mod findings;
mod hostile;
mod page;
#[path = "../sample/mod.rs"]
mod sample;
mod tables;

use lock_bench::record::{Figures, Kind, Measurement, Outcome, Record, Workload};
use pulldown_cmark::{Options, Parser};
use roxmltree::{Document, Node, ParsingOptions};

use sample::contender;

fn measured(server: usize, workload: Workload, kind: Kind, figures: Figures) -> Measurement {
    let name = if kind == Kind::Ours { "polylock" } else { "raw" };
    Measurement { server, workload, contender: contender(kind, name), outcome: Outcome::Measured(figures) }
}

/// Held to be well-formed XML, which HTML need not be, because then any reader agrees on what is what.
fn parsed(page: &str) -> Document<'_> {
    let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
    Document::parse_with_options(page, options).unwrap_or_else(|error| panic!("{error}"))
}

fn events(markdown: &str) -> Parser<'_> {
    Parser::new_ext(markdown, Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH)
}

fn elements<'a, 'page>(
    document: &'a Document<'page>,
    name: &'static str,
) -> impl Iterator<Item = Node<'a, 'page>> {
    document.descendants().filter(move |node| node.is_element() && node.tag_name().name() == name)
}

fn text_of(document: &Document<'_>) -> String {
    document.descendants().filter(Node::is_text).filter_map(|node| node.text()).collect::<Vec<_>>().join("\n")
}

fn heading_depth(node: &Node<'_, '_>) -> Option<usize> {
    ["h1", "h2", "h3"].iter().position(|name| node.has_tag_name(*name)).map(|at| at + 1)
}

/// A row's first cell in a terminal's table.
fn name(line: &str) -> &str {
    line.trim().split("  ").next().unwrap_or_default()
}

/// With single spaces only.
fn joined(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn unwrapped(markdown: &str) -> String {
    markdown.replace("\n  ", " ")
}

/// The sample with hostile text wherever there is text.
fn hostile() -> Record {
    let mut record = sample::record();
    let texts = [&mut record.made, &mut record.machine.cpu, &mut record.machine.system];
    texts.into_iter().for_each(|text| sample::HOSTILE.clone_into(text));
    record.commit = Some(sample::HOSTILE.to_owned());
    for server in &mut record.servers {
        let texts = [
            &mut server.backend,
            &mut server.url,
            &mut server.version,
            &mut server.durability,
            &mut server.topology,
        ];
        texts.into_iter().for_each(|text| sample::HOSTILE.clone_into(text));
    }
    for measurement in &mut record.measurements {
        let peer = &mut measurement.contender;
        if peer.kind == Kind::Peer {
            let texts = [&mut peer.name, &mut peer.language, &mut peer.version];
            texts.into_iter().for_each(|text| sample::HOSTILE.clone_into(text));
        }
    }
    record
}
