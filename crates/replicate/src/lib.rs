//! Replicas of a database: its log as a chain of numbered records in an object store.
//!
//! | module | |
//! |---|---|
//! | [`record`], [`pack`], [`names`] | bytes and names: pure |
//! | [`chain`] | the chain as readers find it |
//! | [`primary`] | the sidecar that ships a database |
//! | [`follower`], [`restore`] | the chain applied to another one |
//! | [`following`] | the chain applied to a database that programs read |
//! | [`apply`], [`parts`] | a chain applied; the pages of its uploads |
//! | [`replicas`] | what can be restored |
//! | [`source`], [`target`] | what is needed of the database on either side |
//! | [`new_file`], [`library`] | a restored database, made with the library inside this program |
//! | [`shelf`] | a file of the sidecar's own |
//! | [`store`], [`world`] | where objects are, time and chance |
//! | [`probe`], [`measure`] | whether a store keeps its promise, and how fast it is |
//! | [`holders`] | who keeps others out of a database |
//! | [`dates`] | moments in UTC |
//! | [`notes`] | lines on standard error |
//!
//! `docs/decisions/chain.md` is the design. Everything but `store::objects`, with folders and
//! their names, and the clock of `main.rs` is pure: it runs in a simulated world as it does in this one.
//! Long parts alone are unpacked by threads, which is seen by nothing but a clock ([`parts`]).

#![deny(unsafe_code, clippy::print_stderr)]

pub mod apply;
pub mod chain;
pub mod dates;
pub mod error;
pub mod fault;
pub mod follower;
pub mod following;
pub mod holders;
pub mod ids;
pub mod library;
pub mod measure;
pub mod names;
pub mod new_file;
pub mod notes;
pub mod pack;
pub mod parts;
pub mod primary;
pub mod probe;
pub mod record;
pub mod replicas;
pub mod restore;
pub mod shelf;
pub mod snapshots;
pub mod source;
pub mod store;
pub mod target;
pub mod world;

#[cfg(any(test, feature = "simulation"))]
pub mod simulation;
