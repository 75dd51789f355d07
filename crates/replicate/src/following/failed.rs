//! A copy that could not be made, for what is at the place, or is not answered for, or for its own disk: it has all pages, which
//! may be many, so it is not begun again before another try may end otherwise.
//!
//! | since it failed | the next copy |
//! |---|---|
//! | a snapshot of later is the newest, and the place was in the way | is begun |
//! | what was in its way there reads in another way, also from a pack | is begun |
//! | its disk was in the way, and has a quarter more room than any time that it failed there | is begun |
//! | the store did not answer for an object, and does by now, or that is led around by now | is begun |
//! | some time has passed, and it was no silence: it may have read badly, say | is begun, and the time to the next one doubles |
//! | none of these | fails as this one |

use std::collections::BTreeSet;
use std::time::Duration;

use crate::chain::{Found, Reader};
use crate::error::{Error, Result};
use crate::ids::{Hash, RecordNumber};
use crate::names;
use crate::world::World;

/// From one look at what was in the way to the next.
const LOOK_AGAIN: Duration = Duration::from_secs(20);
/// From the first copy that failed to the second.
const COPY_AGAIN: Duration = Duration::from_secs(600);
/// From one copy to the next at most.
const COPY_AGAIN_MAX: Duration = Duration::from_secs(3600);
/// The same of copies that the disk did not take, each of which fills it for all who use it.
const DISK_AGAIN: Duration = Duration::from_secs(20);
const DISK_AGAIN_MAX: Duration = Duration::from_secs(600);
/// A full disk has some free bytes now and then.
const MORE_ROOM: u64 = 1 << 20;

/// A copy that could not be made.
pub(super) struct Failed {
    /// The newest snapshot then.
    snapshot: RecordNumber,
    pub error: Error,
    /// What stood in its way.
    stood: Option<Hash>,
    looked: Duration,
    /// It is tried again then.
    until: Duration,
    /// So many before, of the same snapshot or disk.
    times: u32,
    /// The most bytes that were free there when it failed.
    room: u64,
    /// What the store did not answer for, and was led around.
    silent: BTreeSet<String>,
}

/// What there is for a copy: bytes that are free, and objects that are led around.
type With<'a> = (u64, &'a BTreeSet<String>);

impl Failed {
    /// One behind another of which it was a new try; `None` for a failure that comes and goes.
    pub async fn of(
        world: &World,
        before: Option<Failed>,
        snapshot: RecordNumber,
        error: &Error,
        (room, silent): With<'_>,
    ) -> Option<Failed> {
        let is_of_a_record = error.is_refusal() && error.damaged().is_some();
        let (first, longest) = match error {
            // It fails before any page is read, and what is wrong may be mended.
            Error::Moment(_) => return None,
            _ if is_of_disk(error) => (DISK_AGAIN, DISK_AGAIN_MAX),
            _ if lies_there(error) || is_unanswered(error) || is_of_a_record => {
                (COPY_AGAIN, COPY_AGAIN_MAX)
            }
            _ => return None,
        };
        let is_again = |before: &Failed| match is_of_disk(&before.error) {
            true => is_of_disk(error),
            false => before.snapshot == snapshot,
        };
        let before = before.filter(is_again);
        let room = before.as_ref().map_or(room, |before| before.room.max(room));
        let times = before.map_or(0, |before| before.times.saturating_add(1));
        let looked = world.clock().now();
        let pause = first.saturating_mul(1 << times.min(8)).min(longest);
        let (until, error) = (looked + pause, error.clone());
        let stood = match is_unanswered(&error) {
            true => None,
            false => stands_at(world, &error).await.ok().flatten(),
        };
        let silent = silent.clone();
        Some(Failed { snapshot, error, stood, looked, until, times, room, silent })
    }

    /// True if another try would fail in the same way, as far as is known.
    pub async fn stands(
        &mut self,
        world: &World,
        snapshot: RecordNumber,
        (room, silent): With<'_>,
    ) -> Result<bool> {
        let now = world.clock().now();
        let is_other = match is_of_disk(&self.error) {
            true => room > self.room.saturating_add(self.room / 4).saturating_add(MORE_ROOM),
            false => self.snapshot != snapshot,
        };
        if is_other || self.silent != *silent {
            return Ok(false);
        }
        // No time makes it another one.
        if object_of(&self.error).is_some_and(|name| silent.contains(name)) {
            return Ok(true);
        }
        let is_silence = is_unanswered(&self.error);
        if now >= self.until && !is_silence {
            return Ok(false);
        }
        if now < self.looked + LOOK_AGAIN {
            return Ok(true);
        }
        self.looked = now;
        let stands = stands_at(world, &self.error).await?;
        Ok(stands == self.stood && !is_silence)
    }
}

/// True if the disk has no room for the copy.
pub(super) fn is_of_disk(error: &Error) -> bool {
    matches!(error, Error::Target { is_full: true, .. } | Error::Uncopied { is_full: true, .. })
}

/// The object that was in the way.
fn object_of(error: &Error) -> Option<&str> {
    match error {
        Error::Store { name, .. }
        | Error::Record { name, .. }
        | Error::Pack { name, .. }
        | Error::Part { name, .. } => Some(name),
        _ => None,
    }
}

/// True if the store does not give one of its objects now.
pub(super) fn is_unanswered(error: &Error) -> bool {
    let is_object = |name: &str| {
        names::parse_record(name).is_some()
            || names::parse_pack(name).is_some()
            || names::parse_part(name).is_some()
    };
    let is_silence = !error.is_gone() && !error.is_refusal();
    matches!(error, Error::Store { name, .. } if is_silence && is_object(name))
}

/// True if what is at the place is in the way, or what became of it here, and not the store, a full disk, or another process.
pub(super) fn lies_there(error: &Error) -> bool {
    !is_of_disk(error)
        && matches!(
            error,
            Error::Record { .. }
                | Error::Missing { .. }
                | Error::Unlinked { .. }
                | Error::Pack { .. }
                | Error::Part { .. }
                | Error::Moment(_)
                | Error::Differs { .. }
                | Error::Impure { .. }
                | Error::Disorder { .. }
                | Error::Target { .. }
                | Error::Uncopied { .. }
        )
}

/// What stands where an error says that it was in the way.
async fn stands_at(world: &World, error: &Error) -> Result<Option<Hash>> {
    let bytes = match error {
        Error::Record { number, .. }
        | Error::Missing { number, .. }
        | Error::Unlinked { number, .. } => match Reader::new(world).object(*number, true).await {
            Ok(Found::Object(bytes)) => Some(bytes),
            Err(error @ Error::Store { .. }) => return Err(error),
            Ok(Found::Nothing) | Err(_) => None,
        },
        Error::Pack { name, .. } | Error::Part { name, .. } | Error::Store { name, .. } => {
            match world.get(name).await {
                Err(error) if error.is_refusal() => None,
                found => found?,
            }
        }
        _ => None,
    };
    Ok(bytes.map(|bytes| Hash::of(&bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::primary::Settings;
    use crate::simulation::objects::Outage;
    use crate::simulation::run::settings;
    use crate::simulation::stage::{Stage, live};
    use crate::store::StoreError;
    use crate::world::Patience;

    const SECOND: Duration = Duration::from_secs(1);
    const ROOM: u64 = 100 << 20;

    #[test]
    fn a_copy_is_tried_again_when_what_was_in_its_way_has_changed_or_time_has_passed() {
        let stage = Stage::default();
        let database = stage.database("alpha");
        let settings = Settings { pack_every: SECOND, pack_records: 4, ..settings(false) };
        let mut sidecar = stage.open(&database, settings).expect("an empty place");
        live(&stage, &database, &mut sidecar, 30).expect("a quiet world");
        let pack = stage.objects.names_with(names::PACKS).remove(1);
        let (number, _) = names::parse_pack(&pack).expect("a pack");
        let sound = stage.objects.object(&pack);
        stage.objects.damage(&pack, None);
        let (world, clock) = stage.world(Patience::Tries(1));
        let error = Error::Missing { number, name: names::record(number) };
        let (snapshot, none) = (RecordNumber(2), BTreeSet::new());
        let of = |before, error: &Error| {
            stage.block(&clock, Failed::of(&world, before, snapshot, error, (ROOM, &none)))
        };
        let stands = |failed: &mut Failed, of, time| {
            stage.time.advance_to(stage.time.now() + time);
            stage.block(&clock, failed.stands(&world, of, (ROOM, &none))).expect("a quiet world")
        };
        let mut failed = of(None, &error).expect("it lies there");
        assert!(stands(&mut failed, snapshot, SECOND) && stands(&mut failed, snapshot, LOOK_AGAIN));
        assert!(!stands(&mut failed, snapshot.next(), SECOND), "of another snapshot");
        // It comes back in its pack, and not under its own name.
        stage.objects.damage(&pack, sound);
        assert!(!stands(&mut failed, snapshot, LOOK_AGAIN));
        for pause in [COPY_AGAIN * 2, COPY_AGAIN_MAX.min(COPY_AGAIN * 4), COPY_AGAIN_MAX] {
            failed = of(Some(failed), &error).expect("it lies there");
            assert!(stands(&mut failed, snapshot, pause - SECOND * 2));
            assert!(!stands(&mut failed, snapshot, SECOND * 2), "{pause:?} have passed");
        }
        let store = |name: &str| {
            let (what, name) = ("read".to_owned(), name.to_owned());
            Error::Store { what, name, error: StoreError::Unavailable(String::new()) }
        };
        assert!(of(Some(failed), &store(names::CHAIN)).is_none(), "it comes and goes");
        let mut failed = of(None, &store(&pack)).expect("of one object");
        failed = of(Some(failed), &store(&pack)).expect("of one object");
        assert!(stands(&mut failed, snapshot, LOOK_AGAIN - SECOND));
        assert!(!stands(&mut failed, snapshot, SECOND), "it is given by now");
        let silence = Some((Outage::Down, stage.time.now() + COPY_AGAIN * 9));
        let mut failed = of(None, &store(&pack)).expect("of one object");
        stage.objects.set_outage(silence);
        for _ in 0..3 {
            stage.time.advance_to(stage.time.now() + COPY_AGAIN);
            let looks = failed.stands(&world, snapshot, (ROOM, &none));
            assert!(stage.block(&clock, looks).is_err(), "no time brings an answer");
        }
        stage.objects.set_outage(None);
        assert!(!stands(&mut failed, snapshot, LOOK_AGAIN), "it is given by now");
        let of_copy = |is_full| Error::Uncopied { why: "in words".to_owned(), is_full };
        let mut failed = of(None, &of_copy(false)).expect("what is there makes no copy");
        assert!(stands(&mut failed, snapshot, DISK_AGAIN_MAX - SECOND), "not for the disk");
        assert_eq!(
            stage.block(&clock, failed.stands(&world, snapshot, (ROOM * 9, &none))),
            Ok(true)
        );
        assert!(!stands(&mut failed, snapshot.next(), SECOND), "of another snapshot");
        let full = of_copy(true);
        let mut failed = of(None, &full).expect("it fills the disk");
        for pause in [DISK_AGAIN, DISK_AGAIN * 2, DISK_AGAIN * 4] {
            assert!(stands(&mut failed, snapshot.next(), pause - SECOND), "of any snapshot");
            assert!(!stands(&mut failed, snapshot, SECOND), "{pause:?} have passed");
            failed = of(Some(failed), &full).expect("it fills the disk");
        }
        let mut with_room =
            |room| stage.block(&clock, failed.stands(&world, snapshot, (room, &none)));
        assert_eq!(with_room(ROOM * 6 / 5), Ok(true), "it may have failed with that");
        assert_eq!(with_room(ROOM * 3 / 2), Ok(false));
    }
}
