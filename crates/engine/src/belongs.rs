//! Checks that a database file goes with the WAL next to it.
//!
//! SQLite reads a page from the WAL if the WAL has it, and from the file otherwise. It never checks
//! that the two belong together. If a backup is copied over the database after a crash, with the
//! WAL still there, SQLite mixes them page by page, and the mixture passes for sound.
//!
//! Every commit to a concurrent base changes page 1, which has a counter of such changes (bytes
//! 24..27), and in the mark the generation. A checkpoint brings pages of the WAL into the file, and
//! the WAL starts over only when the checkpoint has brought everything. Of several states of a page
//! the checkpoint brings the newest or, if a reader holds that back, perhaps none. So page 1 of the
//! file is
//! - the newest page 1 in the WAL, once a checkpoint has brought that;
//! - before that the page 1 of any commit in the WAL, or the one from which the first of them was
//!   made;
//! - one with versions of 1, and the one from which the first of them was made or a commit behind
//!   that, if the file left WAL mode while another connection began that WAL. SQLite releases its
//!   exclusive lock between removing a WAL and setting the versions, and holds a page 1 that it has
//!   read in between: as in SQLite the WAL counts.
//!
//! The counter grows by one with every commit that stamps the header (`plStamp()` sees to that).
//! With other commits, which only a database at rest can have, it may stay if the same connection
//! commits again. Bytes 18 and 19 of the file may be ahead of the rest: the fence is raised there
//! by itself.
//!
//! A file with the page 1 of another state goes unnoticed if only other pages differ. In concurrent
//! mode no two states have one page 1.

/// Bytes of page 1 that are read.
pub const FIRST_BYTES: usize = 100;

/// The fields of page 1 that identify a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FirstPage {
    /// Bytes 18 and 19, for writers and readers: 2 in WAL mode, 3 under the fence, 3 and 2 of a
    /// replica at rest.
    pub versions: [u8; 2],
    /// Commits that changed page 1.
    pub changes: u32,
    /// The mark of concurrent mode, 0 without it.
    pub salt: u32,
    /// The base is complete through this generation.
    pub generation: u32,
}

impl FirstPage {
    /// Parses the start of a page; `None` if it is not a page 1.
    pub fn parse(page: &[u8]) -> Option<FirstPage> {
        if page.len() < FIRST_BYTES || !page.starts_with(b"SQLite format 3\0") {
            return None;
        }
        let be32 =
            |at: usize| u32::from_be_bytes([page[at], page[at + 1], page[at + 2], page[at + 3]]);
        Some(FirstPage {
            versions: [page[18], page[19]],
            changes: be32(24),
            salt: be32(72),
            generation: be32(76),
        })
    }

    /// True if the fence is up.
    pub fn is_fenced(&self) -> bool {
        self.versions == [3, 3]
    }

    fn is_same_state(&self, other: &FirstPage) -> bool {
        (self.changes, self.salt, self.generation) == (other.changes, other.salt, other.generation)
    }

    /// True if the first commit in a WAL can have been made over this page 1.
    fn may_precede(&self, first: &FirstPage) -> bool {
        let is_mark_kept = self.salt == first.salt && self.generation <= first.generation;
        // The mode was switched on or off, or the fence was raised, which keeps the generation.
        let is_mark_changed = first.salt == 0 || self.generation == first.generation;
        let is_stamped = self.salt == first.salt && self.generation < first.generation;
        let counted = first.changes.wrapping_sub(self.changes);
        (counted == 1 || (counted == 0 && !is_stamped)) && (is_mark_kept || is_mark_changed)
    }
}

/// True if the database file, with this page 1 (`None`: it has none), goes with the WAL.
///
/// `in_wal`: page 1 after each commit in the WAL that changed it, oldest first; `brought`: the
/// newest of them is in the file. A WAL of no concurrent database goes with any file.
pub fn belongs(file: Option<FirstPage>, in_wal: &[FirstPage], brought: bool) -> bool {
    let (Some(first), Some(last)) = (in_wal.first(), in_wal.last()) else { return true };
    if last.salt == 0 {
        return true;
    }
    let Some(file) = file else { return false };
    if file.versions.iter().any(|version| *version < 2) {
        return !brought && file.may_precede(first);
    }
    if brought {
        return file.is_same_state(last);
    }
    file.may_precede(first) || in_wal.iter().any(|page| page.is_same_state(&file))
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT_REST: FirstPage = page(2, 10, 7, 4);

    const fn page(version: u8, changes: u32, salt: u32, generation: u32) -> FirstPage {
        FirstPage { versions: [version, version], changes, salt, generation }
    }

    /// A session over `AT_REST`: the fence, then two merges.
    fn session() -> Vec<FirstPage> {
        vec![page(3, 11, 9, 4), page(3, 12, 9, 5), page(3, 13, 9, 8)]
    }

    #[test]
    fn a_file_that_left_wal_mode_beside_a_wal_in_which_it_is_marked_goes_with_it() {
        let marked = [page(2, 11, 7, 0), page(2, 12, 0, 0), page(2, 13, 8, 0)];
        assert!(belongs(Some(page(1, 10, 0, 0)), &marked, false));
        assert!(!belongs(Some(page(1, 10, 0, 0)), &marked, true));
        let behind = "made from the same state as the first commit";
        assert!(belongs(Some(page(1, 11, 0, 0)), &marked, false), "{behind}");
        assert!(belongs(Some(page(1, 11, 7, 4)), &session(), false), "{behind}, and marked");
        assert!(belongs(Some(page(1, 10, 7, 0)), &marked, false), "marked");
        for other in [page(1, 9, 0, 0), page(1, 12, 0, 0), page(1, 11, 7, 4)] {
            assert!(!belongs(Some(other), &marked, false), "{other:?}");
        }
        assert!(!belongs(Some(page(1, 10, 0, 0)), &[page(2, 11, 7, 3)], false));
    }

    #[test]
    fn every_state_that_a_checkpoint_can_leave_goes_with_the_wal() {
        let wal = session();
        assert!(belongs(Some(AT_REST), &wal, false));
        let raised = FirstPage { versions: [3, 3], ..AT_REST };
        assert!(belongs(Some(raised), &wal, false));
        for file in &wal {
            assert!(belongs(Some(*file), &wal, false), "{file:?}");
        }
        assert!(belongs(Some(wal[2]), &wal, true));
        // The WAL has started over, in the session or after it.
        assert!(belongs(Some(wal[2]), &[page(3, 14, 9, 9)], false));
        assert!(belongs(Some(page(2, 13, 9, 8)), &[page(2, 13, 9, 8)], false), "at rest, by stock");
        assert!(belongs(Some(wal[2]), &[page(2, 14, 9, 8)], false), "unfenced");
        assert!(belongs(Some(page(3, 13, 9, 8)), &[page(2, 14, 0, 0), page(2, 15, 3, 0)], false));
    }

    #[test]
    fn older_states_and_other_databases_do_not() {
        let wal = session();
        assert!(!belongs(None, &wal, false), "no database");
        assert!(!belongs(Some(page(1, 10, 0, 0)), &wal, false), "a rollback-mode backup");
        assert!(!belongs(Some(page(2, 10, 0, 0)), &wal, false), "a WAL-mode backup");
        assert!(!belongs(Some(page(2, 9, 7, 4)), &wal, false), "the resting file of another day");
        assert!(!belongs(Some(page(2, 40, 7, 4)), &wal, false), "or of a later one");
        assert!(!belongs(Some(AT_REST), &wal, true), "what a checkpoint has replaced");
        assert!(!belongs(Some(wal[1]), &wal, true), "likewise, of the same session");
        assert!(!belongs(Some(wal[1]), &[page(3, 14, 9, 9)], false), "the WAL has started over");
        assert!(!belongs(Some(wal[2]), &[page(3, 13, 9, 9)], false), "not the commit after it");
        assert!(!belongs(Some(page(3, 13, 9, 10)), &[page(3, 14, 9, 9)], false), "from the future");
    }

    #[test]
    fn what_is_not_concurrent_is_left_to_sqlite() {
        assert!(belongs(None, &[], false));
        assert!(belongs(Some(page(1, 1, 0, 0)), &[page(2, 99, 0, 0)], true));
    }

    #[test]
    fn the_counter_may_pass_its_end() {
        assert!(belongs(Some(page(3, u32::MAX, 9, 4)), &[page(3, 0, 9, 5)], false));
    }
}
