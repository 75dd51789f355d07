//! From the pinned amalgamation to object code: find it, splice it, compile it.
//!
//! `build.rs` of `plait-sqlite` and `xtask dist` are the two users; the latter also builds the stock
//! library, from the same source with the same flags.
//!
//! | module | concept |
//! |---|---|
//! | [`manifest`] | what cargo says of a manifest |
//! | [`upstream`] | where SQLite's sources are, and that they are the pinned ones |
//! | [`sections`] | the amalgamation as lines and sections |
//! | [`edits`] | the list of changed lines |
//! | [`page`] | the page of the documentation that lists them |
//! | [`prototypes`] | what `btree.h` declares |
//! | [`wrappers`] | headers that choose between stock code and ours |
//! | [`splice`] | all of it together |
//! | [`one_file`] | the splice as one file |
//! | [`flags`] | how SQLite is compiled |
//! | [`exports`] | what the shared objects export |

pub mod edits;
pub mod exports;
pub mod flags;
pub mod manifest;
pub mod one_file;
pub mod page;
pub mod prototypes;
pub mod sections;
pub mod splice;
pub mod upstream;
pub mod wrappers;
