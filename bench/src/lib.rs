#![doc = include_str!("../README.md")]

mod broken;
mod child;
mod contender;
mod failure;
mod measure;
mod place;
#[allow(
    missing_docs,
    clippy::large_enum_variant,
    reason = "the fields say what they are; there are few outcomes"
)]
pub mod record;
pub mod report;
mod run;
mod server;
mod workload;

pub use broken::broken;
pub use child::reexecuted;
pub use failure::Failure;
pub use run::{Plan, Progress, Silent, run};
