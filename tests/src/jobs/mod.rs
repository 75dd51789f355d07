//! The kinds of work that a [`crate::job::Job`] can do.

pub mod counter;
pub mod differential;
pub mod events;
pub mod failing_log;
pub mod history;
pub mod inherited;
pub mod ledger;
pub mod looks;
pub mod maps;
pub mod pairs;
pub mod process_rules;
pub mod queue;
pub mod reader;
pub mod registers;
pub mod replica_reader;
pub mod script;
pub mod stranger;
pub mod wholeness;
