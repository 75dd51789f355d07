//! Named points at which a test may kill or stop the process.
//!
//! With the feature `crash-points`, the environment variable `PLAIT_CRASH_AT="name"` or `"name:n"`
//! makes the n-th passage of that point (from 1) write the name to standard error and end the
//! process with SIGKILL, as the out-of-memory killer would: no destructor, no handler, no flush.
//! Without the feature a point compiles to nothing. `PLAIT_STOP_AT` does this with SIGSTOP: the
//! process stops there until it gets SIGCONT, and holds what it holds.
//!
//! [`CRASH_POINTS`] lists every name; a test compares the list with the sources.
//!
//! `PLAIT_PANIC_AT="pl_get"` or `"pl_get:n"` makes the n-th call of that function of
//! `csrc/engine.h` panic instead, as a fault of the engine would.

/// Marks a point at which a test may kill or stop the process; see [`crate::crash_point`].
#[macro_export]
macro_rules! crash_point {
    ($name:literal) => {
        $crate::crash_point::hit($name)
    };
}

/// Every crash point of the sources, in alphabetical order.
pub const CRASH_POINTS: &[&str] = &[
    "aside.renamed",
    "close.log_removed",
    "close.merged",
    "close.unfenced",
    "commit.appended",
    "commit.inserted",
    "commit.locked",
    "commit.memory_grown",
    "commit.node_inserted",
    "commit.published",
    "commit.ring_grown",
    "commit.unlocked",
    "disable.log_removed",
    "disable.resting",
    "disable.unfenced",
    "exclusive.begun",
    "exclusive.committed",
    "exclusive.settled",
    "exclusive.switched",
    "exclusive.visible",
    "fence.committed",
    "fence.log_created",
    "fence.lowered",
    "fence.lowering",
    "fence.raised",
    "fence.raised_again",
    "follower.announced",
    "follower.committed",
    "gaps.begun",
    "gaps.stored",
    "hold.broken",
    "hold.taking",
    "log.create.renamed",
    "log.create.written",
    "log.frame.copied",
    "log.frame.published",
    "log.generation.recorded",
    "log.grow.filled",
    "log.lead.begun",
    "log.lead.synced",
    "log.lead.unlocked",
    "log.lead.written",
    "log.retire.done",
    "log.segment.assigned",
    "log.window.copied",
    "log.window.moved",
    "log.write.intended",
    "log.write.written",
    "merge.applied",
    "merge.committed",
    "merge.frozen",
    "merge.noted",
    "merge.settled",
    "recovery.applied",
    "recovery.log_removed",
    "recovery.merged",
    "recovery.unfenced",
    "rest.committed",
    "restore.applied",
    "restore.begun",
    "restore.rested",
    "right.freed",
    "right.queued",
    "right.reserved",
    "several.appended",
    "several.committed",
    "several.decided",
    "several.inherited",
    "several.node_inserted",
    "several.pages_put",
    "several.pages_putting",
    "several.pages_removed",
    "several.pages_synced",
    "several.pages_written",
    "several.prepared",
    "several.published",
    "several.reference_removed",
    "several.reference_written",
    "several.referenced",
    "several.resolution_appended",
    "several.resolution_published",
    "several.resolved",
    "several.rolled_back",
    "several.rolling_back",
    "wal.written",
];

/// Those of the program for replicas, which the suites of the library do not pass.
pub const REPLICA_POINTS: &[&str] = &[
    "replica.based",
    "replica.begun",
    "replica.merged",
    "replica.merging",
    "replica.named",
    "replica.naming",
    "replica.paged",
    "replica.pages_committed",
    "replica.settled",
    "shelf.renamed",
    "shelf.written",
];

/// Passes the point `name`. Use the macro [`crash_point!`](crate::crash_point!), which tests can
/// find.
#[inline(always)]
pub fn hit(name: &'static str) {
    #[cfg(feature = "crash-points")]
    armed::hit(name);
    #[cfg(not(feature = "crash-points"))]
    let _ = name;
}

/// Passes the start of `name`, a function of `csrc/engine.h`, where a test may make it panic.
#[inline(always)]
pub fn panic_point(name: &'static str) {
    #[cfg(feature = "crash-points")]
    armed::panic_at(name);
    #[cfg(not(feature = "crash-points"))]
    let _ = name;
}

#[cfg(feature = "crash-points")]
#[allow(unsafe_code)]
mod armed {
    use std::io::Write;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    struct Armed {
        name: String,
        remaining: AtomicU64,
    }

    impl Armed {
        fn from_environment(variable: &str) -> Option<Armed> {
            let text = std::env::var(variable).ok()?;
            let (name, count) = match text.rsplit_once(':') {
                Some((name, n)) => (name, n.parse().ok()?),
                None => (text.as_str(), 1),
            };
            Some(Armed { name: name.to_owned(), remaining: AtomicU64::new(count) })
        }

        /// True at the passage that the variable names.
        fn is_due(&self, name: &str) -> bool {
            // Relaxed: the counter orders nothing but itself.
            self.name == name && self.remaining.fetch_sub(1, Ordering::Relaxed) == 1
        }
    }

    static CRASH: OnceLock<Option<(Armed, i32)>> = OnceLock::new();
    static PANIC: OnceLock<Option<Armed>> = OnceLock::new();

    /// Returns the point, and the signal that the process sends itself there.
    fn crash() -> Option<(Armed, i32)> {
        let (armed, signal) = match std::env::var_os("PLAIT_CRASH_AT") {
            Some(_) => (Armed::from_environment("PLAIT_CRASH_AT")?, libc::SIGKILL),
            None => (Armed::from_environment("PLAIT_STOP_AT")?, libc::SIGSTOP),
        };
        let name = armed.name.as_str();
        assert!(
            super::CRASH_POINTS.contains(&name) || super::REPLICA_POINTS.contains(&name),
            "PLAIT_CRASH_AT or PLAIT_STOP_AT names no crash point: {name}"
        );
        Some((armed, signal))
    }

    pub(super) fn panic_at(name: &str) {
        let armed = PANIC.get_or_init(|| Armed::from_environment("PLAIT_PANIC_AT"));
        assert!(!armed.as_ref().is_some_and(|armed| armed.is_due(name)), "panic planted in {name}");
    }

    pub(super) fn hit(name: &str) {
        let Some((armed, signal)) = CRASH.get_or_init(crash) else { return };
        if !armed.is_due(name) {
            return;
        }
        let mut stderr = std::io::stderr();
        let _ = writeln!(stderr, "{name}");
        let _ = stderr.flush();
        // SAFETY: getpid has no preconditions.
        let pid = unsafe { libc::getpid() };
        // SAFETY: signalling this very process is always permitted.
        unsafe { libc::kill(pid, *signal) };
        if *signal == libc::SIGKILL {
            loop {
                std::thread::park();
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::CRASH_POINTS;
    use std::collections::BTreeSet;
    use std::path::Path;

    /// Returns the names that follow `mark` in the sources.
    pub(crate) fn names_behind(mark: &str) -> BTreeSet<String> {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut found = BTreeSet::new();
        for name in ["engine", "sqlite"] {
            names_below(&crates.join(name).join("src"), mark, &mut found);
        }
        found
    }

    #[test]
    fn the_list_of_the_program_for_replicas_is_exactly_what_its_sources_have() {
        let mut found = BTreeSet::new();
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../replicate/src");
        names_below(&sources, "crash_point!(\"", &mut found);
        let listed: BTreeSet<String> =
            super::REPLICA_POINTS.iter().map(|s| (*s).to_owned()).collect();
        assert_eq!(listed, found);
    }

    fn names_below(dir: &Path, mark: &str, found: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(dir).expect("a readable source folder") {
            let path = entry.expect("a folder entry").path();
            if path.is_dir() {
                names_below(&path, mark, found);
            } else if path.extension().is_some_and(|e| e == "rs")
                && path.file_name().is_some_and(|n| n != "crash_point.rs" && n != "fault.rs")
            {
                let text = std::fs::read_to_string(&path).expect("a readable source file");
                for piece in text.split(mark).skip(1) {
                    found.insert(piece.split('"').next().unwrap_or_default().to_owned());
                }
            }
        }
    }

    #[test]
    fn the_list_of_crash_points_is_exactly_what_the_sources_have() {
        let found = names_behind("crash_point!(\"");
        let listed: BTreeSet<String> = CRASH_POINTS.iter().map(|s| (*s).to_owned()).collect();
        assert_eq!(listed.len(), CRASH_POINTS.len(), "a name is listed twice");
        assert_eq!(listed, found);
    }
}
