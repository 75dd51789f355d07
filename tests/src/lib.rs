//! Harness of the test suites: any `libsqlite3` by path, actors in threads and processes, and checkers.
//!
//! The suites are the files below `tests/tests`, in a folder for each promise that they hold. Their long forms run through the
//! `torture` program, the ratios that the project promises through `ratios`, and everything that must happen in a process
//! of its own through `worker`.

#![deny(unsafe_code)]

pub mod actor;
pub mod crash;
pub mod differential;
pub mod hostile;
pub mod isolation;
pub mod job;
pub mod jobs;
pub mod os;
pub mod paths;
pub mod place;
pub mod planted;
pub mod powercut;
pub mod ratios;
pub mod searchers;
pub mod stopped;
pub mod subject;
pub mod tally;
pub mod torture;
pub mod walks;
pub mod wholeness;

pub use plait_client as sqlite;
pub use plait_client::value;
