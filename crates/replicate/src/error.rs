//! Why something about a chain could not be done: what, where, and what to do.

use std::borrow::Cow;

use crate::ids::{ChainId, RecordNumber};
use crate::pack::BadPack;
use crate::record::BadRecord;
use crate::store::StoreError;

/// Results of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that may go wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A call of the store.
    #[error("{}the store {error}", call_of(what, name, error))]
    Store {
        /// The call.
        what: String,
        /// The object, or the beginning of names.
        name: String,
        /// Why.
        error: StoreError,
    },
    /// An object is no record, or is damaged.
    #[error("record {number} ({name}) is damaged: {why}; {WITHOUT}")]
    Record {
        /// Which one.
        number: RecordNumber,
        /// Its object.
        name: String,
        /// What is wrong.
        why: BadRecord,
    },
    /// An object is no pack, or is damaged.
    #[error("the pack {name} is damaged: {why}; {WITHOUT}")]
    Pack {
        /// Its object.
        name: String,
        /// What is wrong.
        why: BadPack,
    },
    /// A record is not where the chain needs it.
    #[error(
        "record {number} ({name}) is missing, though later ones are there: it was removed, by a \
         rule of the bucket or by hand; {WITHOUT}"
    )]
    Missing {
        /// Which one.
        number: RecordNumber,
        /// Its object.
        name: String,
    },
    /// A record that was read before is not there, nor is a later one.
    #[error(
        "record {number} ({name}), which the database was about to take, is not there any more, nor is a later one: the \
         place is an earlier state of itself; bring back what was there, or wait for what is shipped to it"
    )]
    Withheld {
        /// Which one.
        number: RecordNumber,
        /// Its object.
        name: String,
    },
    /// A record is sound, but of another chain or another moment.
    #[error(
        "record {number} ({name}) does not follow record {}: {why}; it was put there from another \
         replica, or from an older copy of this one; {WITHOUT}",
        number.before()
    )]
    Unlinked {
        /// Which one.
        number: RecordNumber,
        /// Its object.
        name: String,
        /// What differs.
        why: &'static str,
    },
    /// A part of a snapshot.
    #[error(
        "{name}, a part of the pages in record {number}, {why}; start again if retention may have \
         removed it meanwhile, or choose another moment: plait replicas lists them"
    )]
    Part {
        /// The record that names it.
        number: RecordNumber,
        /// Its object.
        name: String,
        /// What is wrong.
        why: Cow<'static, str>,
    },
    /// Retention has removed what is to be read.
    #[error(
        "the records through {through} were removed by retention while they were read or before: \
         start again, from a later moment"
    )]
    Gone {
        /// Through which.
        through: RecordNumber,
    },
    /// Nothing is there.
    #[error(
        "there is no replica at this place: check the URL, and of a folder that its disk is mounted; or begin one with plait \
         replicate"
    )]
    Empty,
    /// Nothing is there any more.
    #[error(
        "no replica is at the place any more, of which the database has record {number}: the place was emptied, or its disk is not \
         mounted; mount it, or bring back what was there"
    )]
    Emptied {
        /// The last that the database has.
        number: RecordNumber,
    },
    /// The place ends before what a follower has.
    #[error(
        "the place ends with record {newest}, and the database has record {number} already: the place was put back to an earlier \
         state, or has lost its newest records; bring back what was there, or wait: the database goes on by itself when what \
         is shipped there has come behind record {number}; to have it at once, follow with a database of another name"
    )]
    Behind {
        /// The last that the database has.
        number: RecordNumber,
        /// The last at the place.
        newest: RecordNumber,
    },
    /// The place has forgotten what a follower has, and goes on without it.
    #[error(
        "the place has another record {number} than the one that the database has: it was put back to an earlier state, and \
         shipped to from there on; the database goes on with a copy of the newest record, when a snapshot leads to that"
    )]
    Forked {
        /// The last that the database has.
        number: RecordNumber,
    },
    /// The moment that was asked for cannot be restored.
    #[error("{0}")]
    Moment(String),
    /// Another writer has taken over.
    #[error(
        "record {number} was written by {by}: this sidecar is fenced and ends; do not restart it \
         while the other one runs"
    )]
    Fenced {
        /// Where they met.
        number: RecordNumber,
        /// The other one.
        by: String,
    },
    /// Another database replicates to this place.
    #[error(
        "{by} replicates from another database to this place: end it, then start with --take-over, \
         or choose another URL"
    )]
    Occupied {
        /// Which one.
        by: String,
    },
    /// The file is younger than what was shipped from its name.
    #[error(
        "the database was made on {made}, and what is at this place was shipped from its name until {shipped}: it is \
         another database, or was put there since, from a backup say; ship it to another place, or start once with \
         --take-over: it is shipped on behind the other, which can be restored for as long as --keep says"
    )]
    MadeAnew {
        /// When.
        made: String,
        /// When the last record was written.
        shipped: String,
    },
    /// The chain is of another database.
    #[error(
        "this place is the replica of another database, or was emptied and begun anew (chain {found}, this database goes to \
         {expected}): choose another URL; to follow what is there now, choose a database of another name; to ship on behind it \
         all the same, start once with --take-over"
    )]
    OtherChain {
        /// What is there.
        found: ChainId,
        /// What the database names.
        expected: ChainId,
    },
    /// The place has lost what was written to it.
    #[error(
        "record {number} ({name}), with which this sidecar began, is not there any more: the place was \
         emptied, replaced or unmounted; bring it back, or start anew with --take-over"
    )]
    Vanished {
        /// Which one.
        number: RecordNumber,
        /// Its object.
        name: String,
    },
    /// The place has an earlier state.
    #[error(
        "record {number} ({name}), the last that this sidecar made, is not there any more: the place was put back to an \
         earlier state, or has lost it; a new start goes on behind what is there, with a snapshot"
    )]
    PutBack {
        /// Which one.
        number: RecordNumber,
        /// Its object.
        name: String,
    },
    /// A record between is gone.
    #[error(
        "record {number} ({name}) was removed from the place, by a rule of the bucket or by hand, and nothing leads over it: \
         the sidecar goes on behind a break, with a snapshot"
    )]
    Removed {
        /// Which one.
        number: RecordNumber,
        /// Its object.
        name: String,
    },
    /// A place has lost how it began.
    #[error(
        "record {number} ({name}), with which the last sidecar began, {} at this place, so that nothing tells from \
         which database that shipped: bring it back; or end that sidecar, if it runs, and start with --take-over; or \
         choose another URL",
        lost_or(*stands, "is missing")
    )]
    Unowned {
        /// Which one.
        number: RecordNumber,
        /// Its object.
        name: String,
        /// What stands there.
        stands: Stands,
    },
    /// The newest record is out of reach, and nothing else is.
    #[error(
        "the newest record {} is refused, and what else was asked for is not: the store has to give this one object, as out of an \
         archive, or by a right to read it, and nothing is shipped until then ({error})",
        number.map_or_else(|| format!("lies in {name}, which"), |number| format!("{number} ({name})"))
    )]
    Refused {
        /// Which one, if the object is its own.
        number: Option<RecordNumber>,
        /// The object.
        name: String,
        /// Why.
        error: StoreError,
    },
    /// The newest record does not say who has written it.
    #[error(
        "record {number} ({name}), the newest one, is damaged, and so is its header, or another record stands under its name, \
         so that nothing tells from which database it is: bring it back; or end the sidecar that ships there, if one runs, and \
         start once with --take-over, which goes on behind it with a snapshot (plait replicas says what can be restored without \
         it)"
    )]
    Unreadable {
        /// Which one.
        number: RecordNumber,
        /// Its object.
        name: String,
    },
    /// A database was shipped to another state of this place.
    #[error(
        "no replica is at this place, and the database was shipped here before (chain {chain}): it was emptied or \
         is not mounted; bring it back, or begin anew with --take-over"
    )]
    NotThere {
        /// What the database names.
        chain: ChainId,
    },
    /// A database was shipped to this place, which has lost how that began.
    #[error(
        "the database was shipped to this place before (chain {chain}), and the place has lost records since: record \
         {number} ({name}), with which its last sidecar began, {}; bring back what was there, or begin anew with \
         --take-over",
        lost_or(*stands, "is not there")
    )]
    Lost {
        /// What the database names, and the place.
        chain: ChainId,
        /// Which one.
        number: RecordNumber,
        /// Its object.
        name: String,
        /// What stands there.
        stands: Stands,
    },
    /// Starters have overtaken each other.
    #[error(
        "another sidecar started, or shipped on, at the same time, six times over: let one of them run"
    )]
    Overtaken,
    /// The store cannot be used.
    #[error("{0}")]
    Unfit(String),
    /// The database, on the side that is shipped from.
    #[error("{0}")]
    Source(String),
    /// The database is no longer there, or no longer in the mode.
    #[error("{0}: the sidecar ends, what was shipped stays")]
    Ended(String),
    /// The database that a chain is applied to.
    #[error("{}: {why}", cannot_apply(*number))]
    Target {
        /// Which one.
        number: RecordNumber,
        /// Why.
        why: String,
        /// Its disk has no space left, as far as is known.
        is_full: bool,
    },
    /// The copy that a database of a follower needs to go on.
    #[error("the newest record cannot be copied: {why}")]
    Uncopied {
        /// Why.
        why: String,
        /// Its disk has no space left.
        is_full: bool,
    },
    /// What a follower has to know before it commits cannot be found out.
    #[error("cannot look at {0}; nothing is committed until that is possible")]
    Unseen(String),
    /// The database of a follower is not the one that it left there.
    #[error(
        "{0}: move it, its mark and the files beside it away to begin anew, or bring back what was there"
    )]
    Replaced(String),
    /// Another one has the database of a follower, or may have it: its lock is gone, or it was promoted.
    #[error("{0}")]
    Taken(String),
    /// Merges here differ from those of the primary.
    #[error(
        "this library merges differently from the one that wrote record {number} ({library}): run \
         that one here"
    )]
    Impure {
        /// At which merge.
        number: RecordNumber,
        /// The primary's versions.
        library: String,
    },
    /// A merge has another result here, though the library is the primary's, or unknown.
    #[error(
        "the merge in record {number} has another result here than it had on the primary, whose \
         library is {library}: a record or a snapshot before it is not the primary's; restore a \
         moment that is reached from another snapshot (plait replicas lists them)"
    )]
    Differs {
        /// At which merge.
        number: RecordNumber,
        /// The primary's versions.
        library: String,
    },
    /// What a participant says contradicts itself.
    #[error("record {number} would not follow what is before it: {why}")]
    Disorder {
        /// Which one.
        number: RecordNumber,
        /// What contradicts.
        why: String,
    },
}

impl Error {
    /// The store refuses a call, and will refuse it again.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Error::Store { error, .. } if error.is_refusal())
    }

    /// The first record that is of no use, where damage, or a hole, is what has failed.
    pub fn damaged(&self) -> Option<RecordNumber> {
        match self {
            Error::Record { number, .. }
            | Error::Missing { number, .. }
            | Error::Unlinked { number, .. } => Some(*number),
            Error::Pack { name, .. } => crate::names::parse_pack(name).map(|(first, _)| first),
            // What the store refuses to give is of no more use.
            Error::Store { name, error, .. } if error.is_refusal() => {
                let pack = crate::names::parse_pack(name).map(|(first, _)| first);
                crate::names::parse_record(name).or(pack)
            }
            _ => None,
        }
    }

    /// The place is not there.
    pub fn is_gone(&self) -> bool {
        matches!(self, Error::Store { error: StoreError::Gone(_), .. })
    }
}

impl Error {
    /// What is wrong with an object, without what to do.
    pub fn what(&self) -> String {
        match self {
            Error::Record { number, name, why: BadRecord::Unread } => {
                format!("record {number} ({name}) cannot be read")
            }
            Error::Record { number, name, why } => {
                format!("record {number} ({name}) is damaged: {why}")
            }
            Error::Missing { number, name } => format!("record {number} ({name}) is missing"),
            Error::Unlinked { number, name, why } => {
                format!("record {number} ({name}) is none of this chain: {why}")
            }
            Error::Pack { name, why: BadPack::Unread } => format!("the pack {name} cannot be read"),
            Error::Pack { name, why } => format!("the pack {name} is damaged: {why}"),
            Error::Part { number, name, why } => {
                format!("{name}, a part of the pages in record {number}, {why}")
            }
            other => other.to_string(),
        }
    }
}

/// The call that has failed, in words. Where the place is not there any call fails, whatever its object.
fn call_of(what: &str, name: &str, error: &StoreError) -> String {
    match error {
        StoreError::Gone(_) => String::new(),
        _ => format!("cannot {what} {name}: "),
    }
}

/// What stands where an OPEN was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stands {
    /// Nothing that can be read.
    Nothing,
    /// Another record: the place has records of two histories.
    Another,
    /// What the store does not give.
    Refused,
}

/// What has become of the record with which a sidecar began.
fn lost_or(stands: Stands, missing: &'static str) -> &'static str {
    match stands {
        Stands::Another => {
            "is another one (a backup was copied into the place, which has records of two histories)"
        }
        Stands::Refused => "is refused by the store, as by an archive or for want of a right,",
        Stands::Nothing => missing,
    }
}

/// What to do about an object that is of no use.
const WITHOUT: &str = "what is before it can be restored (--record, --at): plait replicas says from which snapshots, without a look \
    into each object";

fn cannot_apply(number: RecordNumber) -> String {
    match number {
        RecordNumber::NONE => "cannot begin the replica".to_owned(),
        number => format!("cannot apply record {number}"),
    }
}

/// A text with what others have written in it, for a terminal: control characters are left out.
pub fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() && c != '\n' { char::REPLACEMENT_CHARACTER } else { c })
        .collect()
}

/// Longest text of a trouble, in bytes: a store may answer with a page of its own. Shared memory has 512, also for
/// when it is tried again.
const TROUBLE_BYTES: usize = 460;

/// The same on one line, cut where it is long.
pub fn line(text: &str) -> String {
    let mut line = printable(text).replace('\n', " ");
    if line.len() > TROUBLE_BYTES {
        line.truncate(line.floor_char_boundary(TROUBLE_BYTES - '…'.len_utf8()));
        line.push('…');
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_characters() {
        assert_eq!(line("a\nb"), "a b");
        assert_eq!(line(&"a".repeat(460)), "a".repeat(460));
        assert_eq!(line(&"a".repeat(461)), "a".repeat(457) + "…");
        assert_eq!(line(&"µ".repeat(40_000)), "µ".repeat(228) + "…");
    }

    #[test]
    fn what_others_have_written_does_not_move_the_cursor() {
        assert_eq!(printable("host \u{1b}[2J\r, 7\n"), "host \u{fffd}[2J\u{fffd}, 7\n");
    }
}
