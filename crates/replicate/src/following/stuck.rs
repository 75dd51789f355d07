//! Why records lead no further, and what leads on.
//!
//! | by | what leads on |
//! |---|---|
//! | `Begins` | a snapshot of later |
//! | `Damaged` | the same, or that record where it reads well |
//! | `Refused` | the same records, which are tried first each time; else a copy of any later one |
//! | `PutBack` | any later record to which a snapshot leads, or the record that was forgotten where it is there again |

use std::collections::BTreeSet;
use std::time::Duration;

use super::failed::is_unanswered;
use super::{Following, Mark};
use crate::chain::{Found, Link, Listing, Reader, find_tip};
use crate::error::Error;
use crate::ids::{Hash, RecordNumber};
use crate::names;
use crate::replicas::newest_sound;
use crate::world::Patience;

/// Failures in a row of the database itself, behind which a copy is tried.
const FAILURES: u32 = 3;
/// An object that is not given for so long, while the store answers else, is of no more use than a damaged one: a disk may have
/// lost it.
const UNANSWERED: Duration = Duration::from_secs(600);

/// Why records lead no further.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stuck {
    pub by: By,
    /// In words.
    pub why: String,
}

/// What leads on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// It begins anew there, by what the primary did.
    Begins,
    /// A record is missing or damaged, perhaps this one.
    Damaged(Option<RecordNumber>),
    /// The database does not take it.
    Refused,
    /// The place was put back, and shipped to from there on.
    PutBack,
}

impl Following {
    /// What leads on, if records lead no further.
    pub(super) fn stuck_by(&self) -> Option<By> {
        self.stuck.as_ref().map(|stuck| stuck.by)
    }

    /// Records are followed again.
    pub(super) fn follow_again(&mut self) {
        (self.stuck, self.failures) = (None, 0);
    }

    /// Finds out what leads on behind an error.
    pub(super) async fn note_failure(&mut self, error: &Error) {
        let is_silent = self.stays_unanswered(error).await;
        let by = match error {
            // A snapshot of later may lead on.
            Error::Store { name, .. } if is_silent && number_of(name).is_some() => {
                By::Damaged(number_of(name))
            }
            Error::Store { .. } if error.is_refusal() && error.damaged().is_some() => {
                By::Damaged(error.damaged())
            }
            Error::Store { .. }
            | Error::Empty
            | Error::Emptied { .. }
            | Error::Withheld { .. }
            // Of a copy, which something else was the reason for.
            | Error::Part { .. }
            | Error::Moment(_)
            | Error::Uncopied { .. } => return,
            Error::Unseen(_) => {
                // What was taken is not committed.
                self.forget();
                return;
            }
            Error::Behind { .. } => {
                // What is there when it has come so far is looked at anew.
                self.follow_again();
                self.reader = Reader::new(&self.world);
                return;
            }
            Error::Forked { .. } => By::PutBack,
            Error::Target { .. } => {
                let has_joined = self.live.is_some();
                // A member of the session that comes anew knows more.
                self.leave();
                // A copy would have to join as well.
                self.failures += u32::from(has_joined);
                if self.failures < FAILURES {
                    return;
                }
                By::Refused
            }
            // They are there again where the list was an old one.
            Error::Gone { .. } => By::Damaged(self.mark.as_ref().map(|mark| mark.record.next())),
            _ => By::Damaged(error.damaged()),
        };
        self.stuck.get_or_insert(Stuck { by, why: said(error) });
    }

    /// True if this is an object that was not given for long, and the store answers else: copies are made without it then.
    async fn stays_unanswered(&mut self, error: &Error) -> bool {
        let before = self.unanswered.take();
        let (Error::Store { name, .. }, true) = (error, is_unanswered(error)) else { return false };
        if self.silent.contains(name) {
            return true;
        }
        let now = self.world.clock().now();
        let before = before.filter(|(of, _)| of == name);
        let (_, since) = self.unanswered.insert(before.unwrap_or_else(|| (name.clone(), now)));
        if now.saturating_sub(*since) < UNANSWERED || !self.answers_but_for(name).await {
            return false;
        }
        self.silent.insert(name.clone())
    }

    /// True if the store gives the newest record, or, if this is the object of that, an earlier one.
    async fn answers_but_for(&self, name: &str) -> bool {
        let world = self.world.without(&BTreeSet::from([name.to_owned()]));
        match find_tip(&world).await {
            Ok(tip) => tip.is_some(),
            Err(error) if error.is_refusal() && error.damaged().is_some() => {
                let Ok(listing) = Listing::make(&world).await else { return false };
                newest_sound(&world, &listing).await.is_ok_and(|sound| sound.is_some())
            }
            Err(_) => false,
        }
    }

    /// Asks once more for what the store has not given for long: what it gives by now is read again.
    pub(super) async fn ask_for_silent(&mut self) {
        let once = self.world.with(Patience::Tries(1));
        for name in self.silent.clone() {
            match once.get(&name).await {
                Err(error) if is_unanswered(&error) => {}
                _ => drop(self.silent.remove(&name)),
            }
        }
    }

    /// True if the record that was damaged, missing or forgotten reads well, behind the one before it: it was read badly, or
    /// came back.
    pub(super) async fn reads_on(&self) -> bool {
        let Some(mark) = self.mark.as_ref().filter(|mark| mark.seeding.is_none()) else {
            return false;
        };
        match self.stuck_by() {
            Some(By::Damaged(Some(number))) => {
                self.leads_through(mark, number.max(mark.record.next())).await.is_some()
            }
            Some(By::PutBack) => {
                let found = Reader::new(&self.world).object(mark.record, true).await;
                matches!(found, Ok(Found::Object(bytes)) if Hash::of(&bytes) == mark.hash)
            }
            _ => false,
        }
    }

    /// Reads a record behind the one before it.
    async fn leads_through(&self, mark: &Mark, number: RecordNumber) -> Option<()> {
        let mut reader = Reader::new(&self.world);
        let mut hash = (number == mark.record.next()).then_some(mark.hash);
        for of in [number.before(), number] {
            if of == mark.record {
                continue;
            }
            // A store that does not answer at all is told by who looks for a copy.
            let Ok(Found::Object(bytes)) = reader.object(of, true).await else { return None };
            let mut link = Link { chain: Some(mark.chain), number: of.before(), hash };
            link.follow(&bytes).ok()?;
            hash = link.hash;
        }
        Some(())
    }
}

/// The record whose object this is, or the first one in it.
fn number_of(name: &str) -> Option<RecordNumber> {
    let pack = || names::parse_pack(name).map(|(first, _)| first);
    names::parse_record(name).or_else(pack)
}

/// What is in the way, in words for those who read the database: it goes on by itself.
pub fn said(error: &Error) -> String {
    match error {
        Error::Gone { through } => format!(
            "the records through {through} were removed by retention before the database had them: it goes on with a copy of \
             the newest record"
        ),
        Error::Part { .. } => format!(
            "{}; a copy is tried again when that reads otherwise, from a snapshot of later, or after some minutes",
            error.what()
        ),
        Error::OtherChain { found, expected } => format!(
            "this place is the replica of another database, or was emptied and begun anew (chain {found}, and this database follows \
             {expected}): choose another URL; or, to follow what is there now, choose a database of another name"
        ),
        other => other.to_string(),
    }
}

/// True if this was said: of a place that is behind, how far it has come is not said again and again, nor of a database that
/// takes nothing how much there is to take.
pub(super) fn is_said(told: &Error, now: Option<&Error>) -> bool {
    match (told, now) {
        (Error::Behind { number, .. }, Some(Error::Behind { number: now, .. })) => number == now,
        (Error::Target { why, .. }, Some(Error::Target { why: now, .. })) => why == now,
        (told, now) => Some(told) == now,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::following::{Done, Settings};
    use crate::ids::Lsn;
    use crate::simulation::objects::Outage;
    use crate::simulation::run::settings;
    use crate::simulation::stage::{Running, Stage, live};
    use crate::simulation::time::TaskClock;
    use crate::store::StoreError;
    use crate::world::Patience;

    const SECOND: Duration = Duration::from_secs(1);

    fn shipped(stage: &Stage) -> Running {
        let database = stage.database("alpha");
        let mut sidecar = stage.open(&database, settings(false)).expect("an empty place");
        live(stage, &database, &mut sidecar, 5).expect("a quiet world");
        sidecar
    }

    fn following(stage: &Stage, folder: &std::path::Path) -> (Following, TaskClock) {
        let (world, clock) = stage.world(Patience::Tries(1));
        let (place, database) = ("/mnt/place".to_owned(), folder.join("a.db"));
        let settings = Settings { place, database, poll: SECOND };
        (Following::begin(world, settings).expect("it begins"), clock)
    }

    #[test]
    fn a_record_that_is_not_given_for_long_is_led_around_while_the_store_answers_else() {
        let stage = Stage::default();
        let sidecar = shipped(&stage);
        let folder = tempfile::tempdir().expect("a folder");
        let (mut following, clock) = following(&stage, folder.path());
        let fails_behind = |following: &mut Following, name: String, time| {
            stage.time.advance_to(stage.time.now() + time);
            let error = StoreError::Unavailable("input/output error".to_owned());
            let error = Error::Store { what: "read".to_owned(), name, error };
            stage.block(&clock, following.note_failure(&error));
            following.stuck_by()
        };
        let mut fails = |number, time| fails_behind(&mut following, names::record(number), time);
        let (number, other) = (RecordNumber(3), RecordNumber(4));
        assert_eq!(fails(other, SECOND), None);
        assert_eq!(fails(number, UNANSWERED), None, "another one");
        assert_eq!(fails(number, UNANSWERED - SECOND), None);
        stage.objects.set_outage(Some((Outage::Down, stage.time.now() + UNANSWERED)));
        assert_eq!(fails(number, SECOND), None, "it is the store");
        stage.objects.set_outage(None);
        assert_eq!(fails_behind(&mut following, names::CHAIN.to_owned(), SECOND), None, "a list");
        let mut fails = |number, time| fails_behind(&mut following, names::record(number), time);
        assert_eq!(fails(number, SECOND), None, "in between it was given");
        // A step that finds nothing new: what is there ends before what was announced.
        let tip = sidecar.0.tip();
        let mark = Mark::of_nothing("/mnt/place");
        let until = Some(Lsn(u64::MAX));
        following.mark = Some(Mark { chain: tip.chain, salt: tip.position.salt, until, ..mark });
        assert_eq!(stage.block(&clock, following.step()), Ok(Done::Waited));
        let mut fails = |number, time| fails_behind(&mut following, names::record(number), time);
        assert_eq!(fails(number, UNANSWERED), None, "it was asked for, and is not there yet");
        assert_eq!(fails(number, UNANSWERED), Some(By::Damaged(Some(number))));
    }

    // holds NOTED-1
    #[test]
    fn records_are_not_tried_over_a_copy_that_may_be_there() {
        let stage = Stage::default();
        shipped(&stage);
        let folder = tempfile::tempdir().expect("a folder");
        let (mut following, clock) = following(&stage, folder.path());
        let why = "the database does not take it".to_owned();
        following.stuck = Some(Stuck { by: By::Refused, why });
        stage.objects.set_outage(Some((Outage::Down, stage.time.now() + UNANSWERED)));
        let says = |done| match done {
            Ok(Done::Stuck(why)) => why,
            other => panic!("{other:?}"),
        };
        let text = says(stage.block(&clock, following.step()));
        assert!(text.contains("the store"), "{text}");
        // With all of the database there, they are: it is not there to be opened.
        let mark = following.mark.take().expect("it has one");
        following.mark = Some(Mark { seeding: None, ..mark });
        let text = says(stage.block(&clock, following.step()));
        assert!(text.contains("cannot open "), "{text}");
    }

    #[test]
    fn how_much_there_is_to_take_makes_no_news() {
        let target =
            |number, why: &str| Error::Target { number, why: why.to_owned(), is_full: false };
        let (number, full) = (RecordNumber(3), "no space left");
        assert!(is_said(&target(number, full), Some(&target(number.next(), full))));
        assert!(!is_said(&target(number, full), Some(&target(number, "it is locked"))));
        let behind = |newest| Error::Behind { number, newest };
        assert!(is_said(&behind(RecordNumber(1)), Some(&behind(RecordNumber(2)))));
        assert!(!is_said(&behind(number), Some(&Error::Forked { number })));
    }
}
