//! Backends around backends: each forwards every verb and adds one thing.

mod faulty;
mod traced;

pub use faulty::{Faulty, Injection, Script, Verb};
pub(crate) use traced::Meter;
pub use traced::{Traced, VerbStatistics};
