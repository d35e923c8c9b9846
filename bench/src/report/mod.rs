//! A [`Record`] as a person reads it: in a terminal, in the documentation, in a browser.
//!
//! The three say the same. What a row says is decided once, in `section`; what the figures add up to, in
//! `finding` and `glance`; a report only lays it out. Nothing here measures, asks a server, or reads a file.

mod finding;
mod glance;
mod html;
mod markdown;
mod number;
mod ratio;
mod section;
mod terminal;
mod text;
mod workload;

use crate::record::Record;

/// Plain text for a terminal of 100 columns: a table for each workload.
#[must_use]
pub fn table(record: &Record) -> String {
    terminal::table(record)
}

/// A page of the documentation.
#[must_use]
pub fn markdown(record: &Record) -> String {
    markdown::page(record)
}

/// One file for a browser, with plots. It loads nothing.
#[must_use]
pub fn html(record: &Record) -> String {
    html::page(record)
}
