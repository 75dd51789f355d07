//! Checks that a history of transactions is serializable, and in an order that agrees with real time.
//!
//! [`history`] is what the workers write down, [`versions`] rebuilds the order of versions of every key from it,
//! [`graph`] holds the transactions as nodes and looks for cycles, and [`check`] puts them together.
//!
//! The universe of keys is fixed, so a range read is a set of reads of all keys in it, absent ones included. Every
//! written value is unique, and every write says which value it replaced, so the order of versions needs no guess but
//! one: which of several absences of a key a reader saw. There the checker takes all that time allows and draws only
//! the edges that hold for each of them. What it reports is therefore always real.
//!
//! Readers of a [`replica`] are part of the history; [`follower`] has the processes that make one.

#[cfg(test)]
mod by_hand;
pub mod check;
pub mod follower;
pub mod graph;
pub mod history;
pub mod replica;
pub mod torture;
pub mod trouble;
pub mod versions;
