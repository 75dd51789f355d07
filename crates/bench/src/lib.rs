//! Which embedded store, in which settings, does this workload want on this machine?
//!
//! Repeats four published studies and goes past them. Every engine is loaded in a process of its own for each trial,
//! every trial is verified, and no durability is believed that was not counted.
//!
//! | module | what |
//! |---|---|
//! | [`studies`] | which cells are measured and which charts they make |
//! | [`workloads`] | what is done in a cell |
//! | [`engines`] | the stores |
//! | [`measure`] | trials, their order, their figures |
//! | [`report`] | results as JSON, on the terminal and as a page |
//! | [`quick`] | Plait or SQLite, on one screen |
//! | [`advise`] | which engine for a workload that is described in a few answers |
//! | [`run`] | a plan measured into results |
//! | [`commands`] | the command line |

#![deny(unsafe_code)]

pub mod advise;
pub mod commands;
pub mod engines;
pub mod measure;
pub mod quick;
pub mod report;
pub mod run;
pub mod studies;
pub mod workloads;
