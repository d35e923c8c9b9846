//! The command, as a user runs it: real processes, and a Redis server of each test's own.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bench;
mod death;
mod loss;
mod run;
mod secrets;
mod show;
mod signals;
mod storm;
mod support;
mod terminal;
