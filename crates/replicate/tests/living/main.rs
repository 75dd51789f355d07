//! The sidecar beside a living database: real processes, a folder, and kills.
//!
//! Behind each trial the chain is applied to a model, rows by frames over the rows of the snapshot,
//! and what comes out has to be what the database has.

// The spliced amalgamation that `Library::linked` is about.
use plait_sqlite as _;

#[path = "../../src/real.rs"]
#[allow(dead_code, reason = "a module of the program, of which the tests use a part")]
mod real;

mod changes;
mod disks;
mod following;
#[cfg(feature = "crash-points")]
mod killed;
mod missed;
mod model;
mod older;
mod owners;
mod places;
mod processes;
mod promoted;
mod shipper;
mod silent;
mod stage;
mod successors;
mod sums;
mod trials;
mod unread;
