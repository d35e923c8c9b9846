#![doc = include_str!("../README.md")]

// For authors of backends.
mod authority;
mod backend;
mod claim;
mod clock;
mod driver;
mod lease;

// For both sides.
mod error;
mod fencing;
mod guarantees;
mod loss;
mod name;
mod nursery;
mod options;
mod owner;

mod guard;
mod lock;
mod locks;
mod statistics;

// How it works.
mod backoff;
mod hold;
mod janitor;
mod keeper;
mod ledger;
mod line;
mod mutants;
mod verbs;
mod wait;

pub mod memory;
pub mod wrap;

pub use authority::{Address, Authority, Password};
pub use backend::{Attempt, Backend, Busy, Doubt, Grant, Released, Renewal, Signal, Wake};
pub use claim::Claim;
pub use clock::{Clock, Moment, PausedClock, Sleep, SystemClock};
pub use driver::{Connecting, Driver, Url};
pub use error::{Error, ErrorKind, Result};
pub use fencing::FencingToken;
pub use guarantees::{Fairness, Fault, Faults, Guarantees, Promise, Scope, Takeover, Wakeup};
pub use guard::{Guard, Release};
pub use lease::Lease;
pub use lock::Lock;
pub use locks::Locks;
pub use loss::Loss;
pub use name::Name;
pub use options::Options;
pub use owner::Owner;
pub use statistics::{Handover, Statistics};
