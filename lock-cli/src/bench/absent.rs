//! `polylock bench` of a build without it.

use std::ffi::OsString;

use crate::exit::{self, Failure};

const HOW: &str = "the benchmark is not in this build; the Cargo feature \"bench\" adds it:\n    \
                   cargo install lock-cli --features bench,all";

#[derive(Debug, clap::Args)]
#[command(after_help = HOW)]
pub(crate) struct Bench {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _rest: Vec<OsString>,
}

pub(crate) fn bench(_: &Bench, _verbose: u8) -> Result<u8, Failure> {
    Err(Failure::new(exit::BENCH_USAGE, HOW))
}
