//! A log that was cut or changed gives a prefix of the commits or an error, never a wrong row.
//!
//! The log of a real database, after its process was killed and the shared memory is gone. Every byte of small logs is
//! tried in the engine's own tests; here a sample, through SQL.

use plait_tests::crash::audit::{Acknowledged, Demand, audit};
use plait_tests::crash::image::{Image, dead_database};
use plait_tests::differential::dice::Dice;
use plait_tests::sqlite::{CANTOPEN, CORRUPT, SqlError};
use plait_tests::subject::{Fixture, Subject, real_plait};
use plait_tests::torture::{seed_or, time_or};
use std::ops::Range;
use std::time::{Duration, Instant};

/// Where a log has bytes other than zero, in pieces that lie more than a page apart.
fn written(log: &[u8]) -> Vec<Range<usize>> {
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for at in (0..log.len()).filter(|&at| log[at] != 0) {
        match ranges.last_mut() {
            Some(last) if at < last.end + 4096 => last.end = at + 1,
            _ => ranges.push(at..at + 1),
        }
    }
    ranges
}

/// Entries that are left, or the refusal.
fn what_is_left(fixture: &Fixture, all: &Acknowledged) -> Result<i64, SqlError> {
    let connection = fixture.subject.open(&fixture.database())?;
    let entries = connection.integer("SELECT count(*) FROM entry")?;
    audit(&connection, all, Demand::Prefix).unwrap_or_else(|error| panic!("{error:#}"));
    connection
        .execute(
            "INSERT INTO entry(worker, seq, source, target, amount) VALUES(9, 1, 1, 2, 3);
             BEGIN CONCURRENT; DELETE FROM entry WHERE worker=9; UPDATE account SET balance=balance+3 WHERE id=1;
             UPDATE account SET balance=balance-3 WHERE id=2; UPDATE clock SET tick=tick-1; DELETE FROM total WHERE worker=9; COMMIT",
        )
        .expect("it goes on");
    connection.close().expect("it closes");
    let stock = Subject::stock().open(&fixture.database()).expect("stock opens it");
    audit(&stock, all, Demand::Prefix).unwrap_or_else(|error| panic!("{error:#}"));
    assert_eq!(stock.integer("SELECT count(*) FROM entry"), Ok(entries));
    Ok(entries)
}

struct Damaged {
    image: Image,
    merged: i64,
    acknowledged: Acknowledged,
    ranges: Vec<Range<usize>>,
}

impl Damaged {
    /// A dead database; a merge has brought its first entries into the base, the others are in the log.
    fn new(subject: &Subject) -> Self {
        let (fixture, acknowledged) = dead_database(subject, 40, 25);
        let mut image = Image::of(&fixture.database()).without("-plait-shm").without("-shm");
        let ranges = written(image.bytes("-plait"));
        Self { image, merged: 25, acknowledged, ranges }
    }

    /// A byte in the written parts of the log; often near their ends, where headers and last frames are.
    fn place(&self, dice: &mut Dice) -> usize {
        let range = dice.pick(&self.ranges);
        match dice.roll(4) {
            0 => range.start + dice.roll(range.len().min(200)),
            1 => range.end - 1 - dice.roll(range.len().min(900)),
            _ => range.start + dice.roll(range.len()),
        }
    }

    fn try_out(
        &self,
        subject: &Subject,
        what: &str,
        damage: impl FnOnce(&mut Vec<u8>),
    ) -> Option<i64> {
        let fixture = Fixture::empty(subject.clone());
        let mut image = self.image.clone();
        damage(image.bytes("-plait"));
        image.put(&fixture.database());
        match what_is_left(&fixture, &self.acknowledged) {
            Ok(entries) => {
                assert!(
                    entries >= self.merged,
                    "{what}: only {entries} entries, {} were merged",
                    self.merged
                );
                Some(entries)
            }
            Err(error) => {
                assert!(matches!(error.code, CORRUPT | CANTOPEN), "{what}: {error}");
                assert!(
                    error.message.contains("-plait"),
                    "{what}: the text names the log: {error}"
                );
                // The refusal has changed nothing: with the right log in its place everything is there.
                self.image.put(&fixture.database());
                let entries = what_is_left(&fixture, &self.acknowledged)
                    .unwrap_or_else(|error| panic!("{what}, after a refusal: {error}"));
                assert!(entries >= self.acknowledged.sum(), "{what}, after a refusal: {entries}");
                None
            }
        }
    }
}

fn sample(
    test: &str,
    seed: u64,
    mut each: impl FnMut(&Subject, &Damaged, &mut Dice) -> Option<i64>,
) {
    let Some(subject) = real_plait(test) else { return };
    let damaged = Damaged::new(&subject);
    let mut dice = Dice::new(seed_or(seed));
    let end = Instant::now() + time_or(Duration::from_secs(5));
    let (mut prefixes, mut refusals, mut whole) = (0, 0, 0);
    while Instant::now() < end {
        match each(&subject, &damaged, &mut dice) {
            Some(entries) if entries >= damaged.acknowledged.sum() => whole += 1,
            Some(_) => prefixes += 1,
            None => refusals += 1,
        }
    }
    println!("{whole} whole, {prefixes} prefixes, {refusals} refusals");
    assert!(prefixes + refusals > 0, "no damage was noticed");
}

#[test]
fn a_log_without_damage_gives_every_commit() {
    let Some(subject) = real_plait("damage") else { return };
    let damaged = Damaged::new(&subject);
    let entries = damaged.try_out(&subject, "nothing", |_| ());
    assert!(entries.is_some_and(|entries| entries >= damaged.acknowledged.sum()), "{entries:?}");
}

#[test]
fn a_log_that_is_cut_short_is_refused_wherever_the_cut_is() {
    let Some(subject) = real_plait("cuts") else { return };
    let mut damaged = Damaged::new(&subject);
    let len = damaged.image.bytes("-plait").len();
    let written = damaged.ranges.iter().flat_map(|range| [range.start, range.end]);
    let fixed = [0, 1, 64, 1024, 4096, 8192, 30_000, len / 2, len - 1];
    for at in fixed.into_iter().chain(written).filter(|&at| at < len).collect::<Vec<_>>() {
        let left = damaged.try_out(&subject, &format!("cut at {at}"), |log| log.truncate(at));
        assert_eq!(left, None, "cut at {at} of {len}");
    }
}

#[test]
fn a_log_whose_end_was_never_written_gives_a_prefix_or_an_error() {
    sample("zeros", 2, |subject, damaged, dice| {
        let at = damaged.place(dice);
        damaged.try_out(subject, &format!("zeros from {at}"), |log| log[at..].fill(0))
    });
}

#[test]
fn a_log_with_a_changed_byte_gives_a_prefix_or_an_error() {
    sample("flips", 3, |subject, damaged, dice| {
        let (at, bits) = (damaged.place(dice), u8::try_from(1 + dice.roll(255)).expect("a byte"));
        damaged.try_out(subject, &format!("byte {at} changed by {bits:#x}"), |log| log[at] ^= bits)
    });
}

#[test]
fn a_log_with_a_lost_sector_gives_a_prefix_or_an_error() {
    sample("sectors", 4, |subject, damaged, dice| {
        let at = damaged.place(dice) / 512 * 512;
        damaged.try_out(subject, &format!("sector at {at} zeroed"), |log| {
            let end = log.len().min(at + 512);
            log[at..end].fill(0);
        })
    });
}
