//! Faults that a test plants in the engine, to see that the checkers report them.
//!
//! With the feature `crash-points`, the environment variable `PLAIT_FAULT="name"` makes the library
//! of that process do one thing wrong: the code that calls [`is_planted`] then leaves out, or does
//! too early, what the name says. Without the feature the result is a constant and nothing of this
//! is compiled.
//!
//! [`FAULTS`] lists every name; one test compares the list with the sources, another with the tests
//! that plant the faults.

/// Every fault of the sources, in alphabetical order, with what the library does wrong.
pub const FAULTS: &[(&str, &str)] = &[
    ("conflicts.unchecked", "nothing that a transaction has read counts as changed"),
    ("conflicts.unchecked_ranges", "a new row where a transaction found none is no conflict"),
    ("dead.half_redone", "of what a killed committer published one row alone is put in place"),
    ("dead.unsettled", "what a killed committer has published is shown when somebody else commits"),
    ("deletes.unseen", "a transaction finds a row by its key that it has deleted"),
    ("exclusive.elsewhere", "an exclusive transaction that has changed rows conflicts with nobody"),
    ("fence.left_lowered", "a commit leaves the fence in the file lowered"),
    ("fence.unseen", "a fence that its author did not bring to an end comes or goes later"),
    ("follower.halved", "a follower commits what it has taken in two halves"),
    ("follower.repeated", "a follower commits its last two commits once more, one after the other"),
    ("gaps.uncut", "a row that is put among deleted ones is not looked for"),
    ("log.removed_early", "a recovery removes the log before the database file is at rest"),
    ("log.unsynced", "what is written to the log counts as synced"),
    ("log.unwritten", "what is published counts as written to the log"),
    ("memtable.linked_unordered", "a node may be seen before what it holds"),
    ("processes.known_by_id", "a process that has the caller's id counts as dead"),
    ("readers.lag", "readers see all but the newest commit"),
    ("replicas.waited_early", "a wait on a replica returns at once, as if the commit were there"),
    ("several.taken_back", "a recovery takes back what a super-journal says is committed"),
    ("shown.before_inserted", "a commit is shown before its rows are in memory"),
    ("statements.kept", "what a statement has done that is refused in its middle stays"),
    ("tickets.early", "a ticket counts as on disk when its commit is in memory"),
];

/// True if this fault is planted.
#[inline(always)]
pub fn is_planted(name: &'static str) -> bool {
    #[cfg(feature = "crash-points")]
    return planted::is(name);
    #[cfg(not(feature = "crash-points"))]
    {
        let _ = name;
        false
    }
}

#[cfg(feature = "crash-points")]
mod planted {
    use std::sync::OnceLock;

    static PLANTED: OnceLock<Option<String>> = OnceLock::new();

    pub(super) fn is(name: &str) -> bool {
        let planted = PLANTED.get_or_init(|| {
            let asked = std::env::var("PLAIT_FAULT").ok()?;
            let is_known = super::FAULTS.iter().any(|(name, _)| *name == asked);
            assert!(is_known, "PLAIT_FAULT names no fault: {asked}");
            Some(asked)
        });
        planted.as_deref() == Some(name)
    }
}

#[cfg(test)]
mod tests {
    use super::FAULTS;
    use crate::crash_point::tests::names_behind;

    #[test]
    fn the_list_of_faults_is_exactly_what_the_sources_have() {
        let names: Vec<&str> = FAULTS.iter().map(|fault| fault.0).collect();
        assert!(names.is_sorted(), "{names:?}");
        assert!(names.into_iter().eq(names_behind("is_planted(\"").iter().map(String::as_str)));
    }
}
