//! The benchmark of polylock: what it measures, and how it reports it.

#[allow(
    missing_docs,
    clippy::large_enum_variant,
    reason = "the fields say what they are; there are few outcomes"
)]
pub mod record;
pub mod report;
