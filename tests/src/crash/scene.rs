//! What goes on around a process that is killed, and which of its steps belong there.

use super::case::{Case, Reached};
use super::points::crash_points;
use crate::subject::Subject;

/// What goes on when the process dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scene {
    /// Two others write as well, and merge.
    Crowd,
    /// It is the first to write; two others have the database open and begin to write when it is dead.
    First,
    /// Nobody else has the database open; two open it afterwards.
    Alone,
    /// As before, and the shared memory is gone as well, as after a restart of the machine.
    AloneThenReboot,
    /// It is the last to close.
    LastClose,
    /// It recovers from the log that another dead process has left.
    Recovery,
    /// It switches concurrent mode on and off.
    Conversion,
}

impl Scene {
    /// Whether anything that is acknowledged must be on disk in this scene.
    #[must_use]
    pub fn needs_full(self) -> bool {
        matches!(self, Self::AloneThenReboot | Self::Recovery)
    }

    /// Whether others have the database open beside it.
    #[must_use]
    pub fn has_company(self) -> bool {
        matches!(self, Self::Crowd | Self::First)
    }

    /// The scenes in which a process must pass the point.
    #[must_use]
    pub fn of(point: &str) -> &'static [Self] {
        use Scene::{Alone, AloneThenReboot, Conversion, Crowd, First, LastClose, Recovery};
        let (family, _) = point.split_once('.').expect("a name has two parts");
        match (family, point) {
            (_, "log.create.written" | "log.create.renamed") | ("fence", _) => {
                &[First, Alone, AloneThenReboot, Conversion]
            }
            (_, "log.grow.filled") => &[Alone, AloneThenReboot],
            ("close", _) => &[LastClose],
            ("disable", _) => &[Conversion],
            ("recovery", _) => &[Recovery],
            ("right", _) => &[Crowd],
            ("exclusive" | "merge" | "wal", _) => &[Crowd, Alone, AloneThenReboot, Conversion],
            _ => &[Crowd, Alone, AloneThenReboot],
        }
    }
}

/// The families of points that have scenes here. Those of gaps need deleted rows, and those of several files and of a lost log have
/// scenes of their own: `rows_among_deleted_ones.rs`, `several_files_killed.rs`, `missing_log_killed.rs`.
pub const FAMILIES: [&[&str]; 5] = [
    &["commit", "right"],
    &["log"],
    &["merge", "fence", "wal"],
    &["exclusive", "disable"],
    &["close", "recovery"],
];

/// Points of a family (what stands before the first dot) with the scenes in which they must be passed.
#[must_use]
pub fn cases(families: &[&str]) -> Vec<(&'static str, Scene)> {
    let of = |point: &&str| families.iter().any(|family| point.split('.').next() == Some(family));
    let points = crash_points().into_iter().filter(of);
    points.flat_map(|point| Scene::of(point).iter().map(move |scene| (point, *scene))).collect()
}

/// Kills a process at a point in a scene.
///
/// # Panics
/// With a report if the survivors or what is left are not as they should be, or if the point is never passed.
pub fn kill_at(subject: &Subject, point: &'static str, scene: Scene, seed: u64) {
    let reached = try_to_kill_at(subject, point, scene, seed);
    assert!(
        reached == Reached::Yes,
        "{point} in {scene:?}, from seed {seed} on: the point is never passed in this scene"
    );
}

/// The same, for a search, in which it is no fault if nobody comes to the point.
///
/// # Panics
/// With a report if the survivors or what is left are not as they should be.
pub fn try_to_kill_at(subject: &Subject, point: &'static str, scene: Scene, seed: u64) -> Reached {
    let first = Case::of(point, scene, seed);
    // Among several writers it is chance who comes to a step that is rare, as the first of a segment of the log.
    let again = (0..4).map(|more| Case { passage: 1, ..Case::of(point, scene, seed + more * 100) });
    for case in std::iter::once(first).chain(again) {
        match case.run(subject) {
            Ok(Reached::Yes) => return Reached::Yes,
            Ok(Reached::No) => {}
            Err(error) => panic!("{case:?}: {error:#}"),
        }
    }
    Reached::No
}
