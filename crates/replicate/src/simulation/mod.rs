//! A simulated world: stores that fail in every way a store may, databases, machines that are
//! killed, and a clock. Everything that happens follows from a seed.
//!
//! | module | |
//! |---|---|
//! | [`dice`] | chance |
//! | [`time`] | one clock, and who waits for it |
//! | [`objects`] | the store, and a ledger of everything it ever held |
//! | [`database`] | a base, a log, merges, exclusive transactions, sessions |
//! | [`primary`] | a database as a sidecar reads it |
//! | [`shelf`] | what a sidecar keeps on its machine |
//! | [`sidecar`] | a sidecar that is watched |
//! | [`replica`] | a database that a chain is applied to |
//! | [`oracle`] | what is true, and what was found not to be |
//! | [`stage`] | a quiet world, for tests of one thing each |
//! | [`restored`] | what a restore says of itself |
//! | [`tally`] | what runs have done |
//! | [`run`] | a run of all of it, and the checks behind it |
//!
//! What may stop at any moment is a task: an `async` function that is polled by the run alone. Each
//! call of a store, a clock or a database is such a moment, before its effect and behind it.

pub mod database;
pub mod dice;
pub mod objects;
pub mod oracle;
pub mod primary;
pub mod replica;
pub mod restored;
pub mod run;
pub mod shelf;
pub mod sidecar;
pub mod stage;
pub mod tally;
pub mod time;

#[cfg(test)]
mod changes;
#[cfg(test)]
mod clocks;
#[cfg(test)]
mod failures;
#[cfg(test)]
mod histories;
#[cfg(test)]
mod losses;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod twins;
#[cfg(test)]
mod withheld;
