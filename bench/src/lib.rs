//! The benchmark of polylock: what it measures, and how it reports it.
#![allow(missing_docs, reason = "the fields of the record say what they are by their names")]

pub mod record;
pub mod report;
