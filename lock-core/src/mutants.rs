//! Core with one deliberate fault, to prove that the suite would see it.
//!
//! Compiled in by `--cfg polylock_mutants` only, chosen by the environment variable `POLYLOCK_MUTANT`;
//! `lock-core/mutants.txt` says which test must catch which. In every other build this is `false`.

#[cfg(polylock_mutants)]
pub(crate) fn active(name: &str) -> bool {
    std::env::var_os("POLYLOCK_MUTANT").is_some_and(|chosen| chosen == name)
}

#[cfg(not(polylock_mutants))]
pub(crate) const fn active(_name: &str) -> bool {
    false
}
