//! The mark beside a database that follows a chain: that it does, and how far it has come.
//!
//! `NAME-plait-follows` is a text of lines, a word and its value. The library reads the first ones
//! (docs/format.md), the follower all of them. It is replaced as a whole, by a rename.
//!
//! | the mark says | the database has |
//! |---|---|
//! | neither `until` nor `seeding` | what is committed through `stream`, no more |
//! | `until U` | the same, or what is committed through U |
//! | `seeding R` | the same, or the state of record R |
//!
//! - NOTED-1 `until` or `seeding` is on disk before a commit that it announces begins, and goes when
//!   that has ended. So who starts behind a crash reaches U by his first commit, or copies the database
//!   anew: readers are never shown less than they have seen.
//! - NOTED-2 A database has its mark before it has its name.
//! - NOTED-3 A database whose counter is lower than the mark's is an older state, put back under its name:
//!   it lacks what the mark tells of, and is not gone on with. A commit that is not in the base raises the mark's by one,
//!   as its merge will the database's: whoever makes that merge. The mark behind a copy has the counter of that.
//! - NOTED-4 A database says in its file that it is a replica before it has its name (`csrc/follows.c`
//!   has the bytes), and one that follows from before that was said does as soon as its follower has
//!   joined: SQLite without Plait does not write it.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use plait_engine::storage::names::{follows_new_path, follows_path};

use crate::ids::{ChainId, CommitTs, Hash, Lsn, RecordNumber, Salt};

/// What is kept for the next mark, so that it can tell of a disk that is full: more than one is long, but where the place has a long
/// name.
const ROOM_BYTES: usize = 1024;

/// The first line.
const FIRST: &str = "plait replica 1";

/// What a mark says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The place of the chain, as the user names it.
    pub place: String,
    /// The chain; none before the first copy begins.
    pub chain: ChainId,
    /// The last record of which everything is applied; none before the first copy.
    pub record: RecordNumber,
    /// The session of the primary.
    pub salt: Salt,
    /// The first commit of that session that is known: of an earlier one it is not known what became. Later
    /// than `commit` as long as none is.
    pub first: CommitTs,
    /// The last commit that is applied.
    pub commit: CommitTs,
    /// When the record was written, in milliseconds since 1970.
    pub written_ms: u64,
    /// The record's hash.
    pub hash: Hash,
    /// End of the frames that are applied: a part of the next record may be.
    pub stream: Lsn,
    /// The checksum that ends them, 0 if none is known.
    pub crc: u32,
    /// The change counter that the database's page 1 has at least, once all that is committed is in it; 0 if it is not known
    /// (NOTED-3).
    pub counter: u32,
    /// NOTED-1.
    pub until: Option<Lsn>,
    /// NOTED-1, and the record whose copy may be there by now; the first one where nothing is.
    pub seeding: Option<RecordNumber>,
    /// What keeps the follower from going on.
    pub trouble: Option<Trouble>,
}

/// What keeps a follower from going on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// In words, on one line.
    pub what: String,
    /// Since when, in milliseconds since 1970.
    pub since_ms: u64,
}

impl Mark {
    /// The mark of a database that has nothing yet.
    pub fn of_nothing(place: &str) -> Mark {
        Mark {
            place: place.to_owned(),
            chain: ChainId::default(),
            record: RecordNumber::NONE,
            salt: Salt(0),
            first: CommitTs(1),
            commit: CommitTs(0),
            written_ms: 0,
            hash: Hash([0; 32]),
            stream: Lsn(0),
            crc: 0,
            counter: 0,
            until: None,
            seeding: Some(RecordNumber::FIRST),
            trouble: None,
        }
    }

    /// Reads the mark of a database; `None` if there is none.
    ///
    /// # Errors
    /// In words.
    pub fn read(database: &Path) -> Result<Option<Mark>, String> {
        let path = follows_path(database);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(format!("cannot read {}: {e}", path.display())),
        };
        let mark = Mark::parse(&text);
        mark.map(Some).ok_or_else(|| {
            format!(
                "{} is damaged, or of another version of Plait: how far {} is cannot be told; move it, the database and \
                 the files beside it away, and begin anew",
                path.display(),
                database.display()
            )
        })
    }

    fn parse(text: &str) -> Option<Mark> {
        let mut lines = plait_engine::replica::sound(text)?.lines();
        if lines.next() != Some(FIRST) {
            return None;
        }
        let words: std::collections::HashMap<&str, &str> =
            lines.filter_map(|line| line.split_once(' ')).collect();
        let number = |word: &str| words.get(word)?.parse::<u64>().ok();
        Some(Mark {
            place: (*words.get("place")?).to_owned(),
            chain: ChainId(hex(words.get("chain")?)?),
            record: RecordNumber(number("record")?),
            salt: Salt(number("salt")?.try_into().ok()?),
            first: CommitTs(number("first")?),
            commit: CommitTs(number("commit")?),
            written_ms: number("written")?,
            hash: Hash(hex(words.get("hash")?)?),
            stream: Lsn(number("stream")?),
            crc: number("crc")?.try_into().ok()?,
            counter: number("counter")?.try_into().ok()?,
            until: match number("until")? {
                0 => None,
                until => Some(Lsn(until)),
            },
            seeding: Some(RecordNumber(number("seeding")?))
                .filter(|copied| *copied > RecordNumber::NONE),
            trouble: match number("trouble_since")? {
                0 => None,
                since_ms => Some(Trouble { what: (*words.get("trouble")?).to_owned(), since_ms }),
            },
        })
    }

    /// Replaces the mark of a database. `durably`: it is on disk when this returns, else it or the one before.
    ///
    /// # Errors
    /// The system's.
    pub fn write(&self, database: &Path, durably: bool) -> io::Result<()> {
        let (path, new) = (follows_path(database), follows_new_path(database));
        let text = self.text();
        let mut file = opened(&new).map_err(|e| named(&new, &e))?;
        file.write_all(text.as_bytes())?;
        file.set_len(text.len() as u64)?;
        // Behind a power cut a name must not lead to a file without contents.
        file.sync_data()?;
        if !super::is_named(&file, &new)? {
            return Err(named(&new, &io::ErrorKind::ResourceBusy.into()));
        }
        std::fs::rename(&new, &path)?;
        drop(file);
        // Room for the next one, where there is some: that of the one before is free by now.
        let _ = opened(&new).and_then(|mut file| file.write_all(&[0; ROOM_BYTES]));
        match path.parent() {
            Some(folder) if durably => {
                let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
                File::open(folder)?.sync_all()
            }
            _ => Ok(()),
        }
    }

    fn text(&self) -> String {
        let Mark {
            place,
            chain,
            record,
            salt,
            first,
            commit,
            written_ms,
            stream,
            crc,
            counter,
            ..
        } = self;
        let hash: String = self.hash.0.iter().map(|byte| format!("{byte:02x}")).collect();
        let until = self.until.unwrap_or(Lsn(0));
        let seeding = self.seeding.unwrap_or(RecordNumber::NONE);
        let (since, trouble) =
            self.trouble.as_ref().map_or((0, ""), |trouble| (trouble.since_ms, &*trouble.what));
        plait_engine::replica::with_sum(&format!(
            "{FIRST}\nplace {place}\nchain {chain}\nrecord {record}\nsalt {salt}\nfirst {first}\ncommit {commit}\n\
             written {written_ms}\nhash {hash}\nstream {stream}\ncrc {crc}\ncounter {counter}\nuntil {until}\nseeding {seeding}\n\
             trouble_since {since}\ntrouble {trouble}\n"
        ))
    }
}

/// Opens the file of the next mark, which has its room, and nothing in it that anybody needs; what is no file of this user's is
/// replaced. It is this process's alone until it is closed: a second follower, of which the first has lost its lock, must not write
/// into what has become the mark meanwhile.
fn opened(new: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.write(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let file = match options.create(true).truncate(false).open(new) {
        Ok(file) if is_own(&file)? => file,
        Err(e) if !is_replaced(&e) => return Err(e),
        other => {
            std::fs::remove_file(new).map_err(|e| other.err().unwrap_or(e))?;
            options.create_new(true).open(new)?
        }
    };
    rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive)?;
    match super::is_named(&file, new)? {
        true => Ok(file),
        false => Err(io::ErrorKind::ResourceBusy.into()),
    }
}

/// A failure with the file that has failed.
fn named(file: &Path, error: &io::Error) -> io::Error {
    let advice = match error.kind() {
        io::ErrorKind::IsADirectory => ": move it away",
        _ => "",
    };
    io::Error::new(error.kind(), format!("{}: {error}{advice}", file.display()))
}

/// A file, and under no other name: not a pipe that somebody reads, nor a link to what somebody needs.
fn is_own(file: &File) -> io::Result<bool> {
    file.metadata().map(|meta| meta.is_file() && meta.nlink() <= 1)
}

/// A link, a pipe, or somebody else's.
fn is_replaced(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    [libc::ELOOP, libc::ENXIO, libc::EACCES, libc::EPERM].map(Some).contains(&code)
}

fn hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    if text.len() != 2 * N || !text.is_ascii() {
        return None;
    }
    for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
        let digits = std::str::from_utf8(digits).ok()?;
        *byte = u8::from_str_radix(digits, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark() -> Mark {
        Mark {
            place: "s3://bucket/a place".to_owned(),
            chain: ChainId([0xab; 16]),
            record: RecordNumber(12),
            salt: Salt(u32::MAX),
            first: CommitTs(7),
            commit: CommitTs(77),
            written_ms: 1_764_380_000_000,
            hash: Hash([0x0f; 32]),
            stream: Lsn(1 << 40),
            crc: 0xdead_beef,
            counter: 12,
            until: Some(Lsn(9)),
            seeding: Some(RecordNumber(20)),
            trouble: Some(Trouble { what: "the store is full: free some".to_owned(), since_ms: 7 }),
        }
    }

    #[test]
    fn the_next_mark_has_its_room_whatever_is_under_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("a.db");
        let new = follows_new_path(&database);
        let (long, short) = (mark(), Mark { place: "/a".to_owned(), trouble: None, ..mark() });
        assert!(long.text().len() < ROOM_BYTES);
        for mark in [&long, &short, &long] {
            mark.write(&database, true).unwrap();
            assert_eq!(Mark::read(&database), Ok(Some(mark.clone())));
            assert_eq!(std::fs::metadata(&new).unwrap().len(), ROOM_BYTES as u64);
        }
        // Another follower writes there, and may have renamed it by then.
        let other = opened(&new).unwrap();
        assert!(short.write(&database, true).is_err());
        assert_eq!(Mark::read(&database), Ok(Some(long.clone())));
        drop(other);
        // Nobody waits for a pipe.
        std::fs::remove_file(&new).unwrap();
        let rights = rustix::fs::Mode::from(0o600);
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &new, kind, rights, 0).unwrap();
        short.write(&database, true).unwrap();
        assert_eq!(std::fs::metadata(&new).unwrap().len(), ROOM_BYTES as u64);
        // Nobody's file is written through a link.
        let other = folder.path().join("other");
        std::fs::write(&other, b"of somebody").unwrap();
        std::fs::remove_file(&new).unwrap();
        std::os::unix::fs::symlink(&other, &new).unwrap();
        short.write(&database, true).unwrap();
        assert_eq!(Mark::read(&database), Ok(Some(short.clone())));
        assert_eq!(std::fs::read(&other).unwrap(), b"of somebody");
        // Nor through a second name, nor into a pipe that somebody reads.
        std::fs::remove_file(&new).unwrap();
        std::fs::hard_link(&other, &new).unwrap();
        short.write(&database, true).unwrap();
        assert_eq!(std::fs::read(&other).unwrap(), b"of somebody");
        std::fs::remove_file(&new).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, &new, kind, rights, 0).unwrap();
        let reader = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(&new).unwrap();
        long.write(&database, true).unwrap();
        assert_eq!(Mark::read(&database), Ok(Some(long)));
        assert_eq!(io::Read::read(&mut &reader, &mut [0; 8]).unwrap(), 0);
        std::fs::remove_file(&new).unwrap();
        std::fs::create_dir(&new).unwrap();
        let error = short.write(&database, true).unwrap_err().to_string();
        assert!(error.starts_with(new.to_str().unwrap()), "{error}");
        assert!(error.ends_with(": move it away"), "{error}");
    }

    #[test]
    fn a_mark_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("a.db");
        assert_eq!(Mark::read(&database), Ok(None));
        for durably in [true, false] {
            mark().write(&database, durably).unwrap();
            assert_eq!(Mark::read(&database), Ok(Some(mark())));
        }
        let no_commit = Mark { until: None, seeding: None, trouble: None, ..mark() };
        no_commit.write(&database, true).unwrap();
        assert_eq!(Mark::read(&database), Ok(Some(no_commit)));
    }

    // holds REPLICA-4
    #[test]
    fn a_mark_that_is_cut_changed_or_of_another_version_is_refused() {
        let text = mark().text();
        for cut in 0..text.len() {
            assert_eq!(Mark::parse(&text[..cut]), None, "{cut}");
        }
        for (was, is) in [("record 12\n", "record 99\n"), ("seeding 20\n", "seeding 0\n")] {
            assert_eq!(Mark::parse(&text.replace(was, is)), None, "{is}");
        }
        let later = text.replace("replica 1", "replica 2");
        let lines = plait_engine::replica::with_sum(later.rsplit_once("sum ").unwrap().0);
        assert_eq!(Mark::parse(&lines), None);
    }
}
