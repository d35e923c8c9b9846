//! `cargo xtask docs`: what is generated from the code. A test fails while it is stale.

use crate::step::{self, Result, cargo};

pub(crate) fn write() -> Result {
    let mut bless = cargo("test -p polylock --all-features --test generated_docs");
    step::run("generated documents", bless.env("POLYLOCK_BLESS", "1"))
}
