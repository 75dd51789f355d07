//! The list of edits: every line of SQLite that the spliced amalgamation changes.
//!
//! An edit names a section (the file between `Begin file X` and `End of X` banners), one
//! whole line of it, and what happens there. The line must occur exactly once in its section, or the build
//! fails and names the edit: so an upgrade of SQLite either fits or is looked at.
//!
//! Edits that serve one thing are one [`Concern`], which says what to look at in a new SQLite. A file
//! below `edits/` holds the concerns of one subject; [`FILES`] lists the files. `docs/sqlite-edits.md` is
//! written from here (see [`crate::page`]).
//!
//! Hooks (`plXxx`) are static functions of `csrc/`, declared in `dispatch.h` if called from
//! `btree.c`, else anywhere before the end of `dispatch.c`. Inserted lines end in `/* [plait] */`.
//!
//! Not in this list: the renaming of b-tree functions, which follows `csrc/alternatives.txt` and
//! `csrc/handwritten.txt` (see [`crate::wrappers`]).

mod application;
mod begin;
mod commit;
mod maps;
mod memory;
mod mode;
mod pages;
mod processes;
mod rows;
mod search;
mod state;
mod statements;
mod wal_file;
mod wal_index;

use std::sync::LazyLock;

/// Where the new text goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Above the anchor line.
    Before,
    /// Below the anchor line.
    After,
    /// In place of the anchor line.
    Replace,
}

/// One change of one line.
#[derive(Clone, Copy, Debug)]
pub struct Edit {
    /// File of SQLite that holds the line.
    pub section: &'static str,
    /// The whole line, as SQLite has it.
    pub anchor: &'static str,
    /// Where `text` goes.
    pub place: Place,
    /// One or more new lines, without the last line's end.
    pub text: &'static str,
    /// What the change is for; understood without the edits around it.
    pub why: &'static str,
}

/// The edits that serve one thing.
#[derive(Clone, Copy, Debug)]
pub struct Concern {
    /// Its name in the documentation.
    pub title: &'static str,
    /// What the edits do, in one sentence.
    pub purpose: &'static str,
    /// What of a new SQLite may make them wrong although their anchors fit.
    pub look_at: &'static str,
    /// The edits.
    pub edits: &'static [Edit],
}

/// The files of edits, by name, and their concerns. An edit is in no list but that of its concern.
pub const FILES: &[(&str, &[Concern])] = &[
    ("state.rs", state::CONCERNS),
    ("mode.rs", mode::CONCERNS),
    ("begin.rs", begin::CONCERNS),
    ("commit.rs", commit::CONCERNS),
    ("statements.rs", statements::CONCERNS),
    ("rows.rs", rows::CONCERNS),
    ("search.rs", search::CONCERNS),
    ("memory.rs", memory::CONCERNS),
    ("pages.rs", pages::CONCERNS),
    ("maps.rs", maps::CONCERNS),
    ("application.rs", application::CONCERNS),
    ("processes.rs", processes::CONCERNS),
    ("wal_index.rs", wal_index::CONCERNS),
    ("wal_file.rs", wal_file::CONCERNS),
];

/// All edits.
pub static EDITS: LazyLock<Vec<Edit>> = LazyLock::new(|| {
    let concerns = FILES.iter().flat_map(|(_, concerns)| concerns.iter());
    concerns.flat_map(|concern| concern.edits).copied().collect()
});
