//! The pages of an exclusive transaction that is prepared as a part of one over several files:
//! `-plait-pages` (several.rs).
//!
//! On SQLite's own path a transaction changes pages, not rows, and its commit counts from the
//! moment it is in the WAL. So what has to be on disk before the decision goes next to the
//! database: every page that the transaction has changed, as it is to be. A process that finds the
//! transaction committed, and the base without it, writes the pages into the base in one
//! transaction of SQLite's.
//! SQLite's.
//! ```text
//! file    0  magic            8   "PlaitPgs"
//!         8  version          u32 1
//!        12  salt             u32 of the session
//!        16  nonce            u64 of this file
//!        24  generation       u32 which the transaction stamps
//!        28  before           u32 generation that the base has, to which the pages go
//!        32  change counter   u32 of that base (bytes 24..27 of its page 1)
//!        36  page bytes       u32
//!        40  page count       u32 of the database, with the transaction
//!        44  count            u32 of the pages that follow
//!        48  sum              u32 CRC-32C of everything behind the header
//!        52  zero             8
//!        60  crc              u32 CRC-32C of bytes 0..60
//!        64  count times: page number u32, ascending; zero u32; the page
//! ```
//!
//! Integers are little-endian. The log's frame P has nonce and crc, and so names this very content.
//!
//! Invariants
//! - PAGES-1 The file is complete and on disk before P is written (SEVERAL-1). It goes only after
//!   the base has the stamp, or the log the empty frame, on disk (PREP-4).
//! - PAGES-2 The file is used for one P, of one log, over one state of the base: salt, nonce, crc
//!   and generation are those of P, `before` and change counter those of the base. Any other file
//!   is refused, and nothing is written.
//! - PAGES-3 To use the file again is to write the same pages over the same state: no other
//!   connection writes to the base while P is not resolved (ESTATE-2).
//!
//! The file is input: it is checked whole before a page of it is used. Its pages are trusted as the
//! pages of a WAL next to the database are.

use std::fs::File;
use std::io::{BufReader, BufWriter, Error as IoError, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::base::Base;
use crate::crash_point;
use crate::error::{Error, Result};
use crate::ids::Generation;
use crate::log::{PAGES_ID_BYTES, PagesId};
use crate::random;
use crate::storage::Storage as _;
use crate::storage::names::suffixed;
use crate::storage::os::OsStorage;
use crate::storage::side;

use crate::storage::names::PAGES_MAGIC as MAGIC;
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 64;
const ENTRY_BYTES: usize = 8;
/// SQLite's bounds of a page size.
const PAGE_BYTES: std::ops::RangeInclusive<u32> = 512..=65536;
/// SQLite never uses the page with this byte of the file, which is for its locks.
const LOCK_BYTE: u64 = 0x4000_0000;
/// Bytes that are written and read at once.
const CHUNK_BYTES: usize = 1 << 18;

/// The pages that a transaction has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Changed {
    /// Change counter of the base before the transaction.
    pub change_counter: u32,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Pages of the database with the transaction.
    pub page_count: u32,
    /// Pages that it has changed.
    pub count: u32,
}

/// Takes a page: its number and its content.
pub type TakePage<'a> = dyn FnMut(u32, &[u8]) -> Result<()> + 'a;
/// Passes pages, by ascending number.
pub type EachPage<'a> = dyn FnMut(&mut TakePage<'_>) -> Result<()> + 'a;

/// The session and the state of the base that the pages go with (PAGES-2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Salt of the session.
    pub salt: u32,
    /// Generation that the transaction stamps.
    pub generation: Generation,
    /// Generation of the base without the transaction.
    pub before: Generation,
}

/// Returns the name of the pages next to a database file.
pub fn pages_path(base: &Path) -> PathBuf {
    suffixed(base, "-plait-pages")
}

fn failed(what: &str, path: &Path, e: &IoError) -> Error {
    let text = format!("cannot {what} {}", path.display());
    match e.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG) => Error::Full(format!("{text}: {e}")),
        _ => Error::io(text, e),
    }
}

fn refused(path: &Path, e: &IoError) -> Option<Error> {
    let why = side::refusal(e)?;
    Some(Error::CantOpen(format!("{} cannot be used: {why}", path.display())))
}

/// Writes the file, which is on disk when this returns (PAGES-1). The caller has the right to
/// merge, and nothing is prepared.
pub(crate) fn write(
    base: &Path,
    place: &Place,
    changed: &Changed,
    each: &mut EachPage<'_>,
) -> Result<PagesId> {
    let path = pages_path(base);
    let file = side::open_or_create(&path)
        .map_err(|e| refused(&path, &e).unwrap_or_else(|| failed("create", &path, &e)))?;
    let io = |e: IoError| failed("write", &path, &e);
    file.set_len(0).map_err(io)?;
    let mut out = BufWriter::with_capacity(CHUNK_BYTES, &file);
    // The header is written at the end: until then this is not a file of pages.
    out.write_all(&[0; HEADER_BYTES]).map_err(io)?;
    let (mut sum, mut count) = (0, 0);
    each(&mut |number, page| {
        assert_eq!(page.len(), changed.page_bytes as usize, "a page of this database");
        let entry = entry(number);
        sum = crc32c::crc32c_append(crc32c::crc32c_append(sum, &entry), page);
        count += 1;
        out.write_all(&entry).and_then(|()| out.write_all(page)).map_err(io)
    })?;
    assert_eq!(count, changed.count, "the pages were counted");
    out.flush().map_err(io)?;
    drop(out);
    let header = Header { nonce: random::number(), place: *place, changed: *changed, sum }.encode();
    file.write_all_at(&header, 0).map_err(io)?;
    crash_point!("several.pages_written");
    let synced = file.sync_all().and_then(|()| OsStorage.sync_dir_of(&path));
    synced.map_err(|e| failed("sync", &path, &e))?;
    Ok(id_of(&header))
}

/// Removes the file, whose transaction is resolved on disk (PAGES-1). A failure leaves it behind
/// for the next call.
pub(crate) fn forget(base: &Path) {
    let path = pages_path(base);
    if let Ok(file) = side::open(&path, false)
        && side::is_ours(&file, &path).unwrap_or(false)
    {
        let _ = side::remove(&file, &path);
        crash_point!("several.pages_removed");
    }
}

fn entry(number: u32) -> [u8; ENTRY_BYTES] {
    u64::from(number).to_le_bytes()
}

fn id_of(header: &[u8; HEADER_BYTES]) -> PagesId {
    let mut id = [0; PAGES_ID_BYTES];
    id[..8].copy_from_slice(&header[16..24]);
    id[8..12].copy_from_slice(&header[60..64]);
    id
}

struct Header {
    nonce: u64,
    place: Place,
    changed: Changed,
    sum: u32,
}

impl Header {
    fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut b = [0; HEADER_BYTES];
        b[0..8].copy_from_slice(&MAGIC);
        b[8..12].copy_from_slice(&VERSION.to_le_bytes());
        b[12..16].copy_from_slice(&self.place.salt.to_le_bytes());
        b[16..24].copy_from_slice(&self.nonce.to_le_bytes());
        b[24..28].copy_from_slice(&self.place.generation.get().to_le_bytes());
        b[28..32].copy_from_slice(&self.place.before.get().to_le_bytes());
        b[32..36].copy_from_slice(&self.changed.change_counter.to_le_bytes());
        b[36..40].copy_from_slice(&self.changed.page_bytes.to_le_bytes());
        b[40..44].copy_from_slice(&self.changed.page_count.to_le_bytes());
        b[44..48].copy_from_slice(&self.changed.count.to_le_bytes());
        b[48..52].copy_from_slice(&self.sum.to_le_bytes());
        let crc = crc32c::crc32c(&b[..60]);
        b[60..64].copy_from_slice(&crc.to_le_bytes());
        b
    }

    /// `Err` says why these bytes are not a header.
    fn decode(b: &[u8; HEADER_BYTES]) -> Result<Header, &'static str> {
        let word = |at: usize| u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]]);
        if b[0..8] != MAGIC {
            return Err("it is not a file of pages, or was not finished");
        }
        if word(8) != VERSION {
            return Err("it is of another version of the library");
        }
        if word(60) != crc32c::crc32c(&b[..60]) {
            return Err("its head is damaged");
        }
        let header = Header {
            nonce: u64::from(word(16)) | u64::from(word(20)) << 32,
            place: Place {
                salt: word(12),
                generation: Generation::new(word(24)),
                before: Generation::new(word(28)),
            },
            changed: Changed {
                change_counter: word(32),
                page_bytes: word(36),
                page_count: word(40),
                count: word(44),
            },
            sum: word(48),
        };
        let Changed { page_bytes, page_count, count, .. } = header.changed;
        let is_size = page_bytes.is_power_of_two() && PAGE_BYTES.contains(&page_bytes);
        if !is_size || count == 0 || count > page_count {
            return Err("its head states impossible values");
        }
        Ok(header)
    }
}

/// A complete file of pages that is the one the log names.
pub(crate) struct Pages {
    file: File,
    path: PathBuf,
    header: Header,
}

/// Opens the pages of the transaction that is prepared under this name, in this log (PAGES-2).
///
/// # Errors
/// `CantOpen` or `Corrupt`, with a text: what is missing was committed.
pub(crate) fn open(base: &Path, id: &PagesId, salt: u32, generation: Generation) -> Result<Pages> {
    let path = pages_path(base);
    let file = match side::open(&path, false) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            let text = "is missing: it holds the last transaction of the log, which was committed over several files";
            return Err(Error::CantOpen(unusable(base, &path, text)));
        }
        Err(e) => return Err(refused(&path, &e).unwrap_or_else(|| failed("open", &path, &e))),
    };
    let corrupt =
        |why: &str| Error::Corrupt(unusable(base, &path, &format!("cannot be used: {why}")));
    let mut head = [0; HEADER_BYTES];
    match file.read_exact_at(&mut head, 0) {
        Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => {
            return Err(corrupt("it is cut short"));
        }
        read => read.map_err(|e| failed("read", &path, &e))?,
    }
    let header = Header::decode(&head).map_err(&corrupt)?;
    let is_meant =
        id_of(&head) == *id && header.place.salt == salt && header.place.generation == generation;
    if !is_meant {
        let text = "belongs to another transaction than the last one of the log";
        return Err(Error::CantOpen(unusable(base, &path, text)));
    }
    let pages = Pages { file, path: path.clone(), header };
    let mut sum = 0;
    let mut last = 0;
    let count = pages.header.changed.page_count;
    let locked = LOCK_BYTE / u64::from(pages.header.changed.page_bytes) + 1;
    let mut is_sound = true;
    let read = pages.each(|number, entry, page| {
        sum = crc32c::crc32c_append(crc32c::crc32c_append(sum, &entry), page);
        is_sound &= number > last && number <= count && u64::from(number) != locked;
        is_sound &= entry[4..] == [0; 4];
        last = number;
        Ok(())
    });
    match read {
        Err(Error::Io { errno: 0, .. }) => return Err(corrupt("it is cut short")),
        read => read?,
    }
    if sum != pages.header.sum {
        return Err(corrupt("its checksum does not match"));
    }
    if !is_sound {
        return Err(corrupt("it names impossible pages"));
    }
    Ok(pages)
}

fn unusable(base: &Path, path: &Path, text: &str) -> String {
    format!(
        "{} {text}; put the file back that was there, or give that transaction up: `plait recover \
         --accept-base {}` (it asks; --yes answers)",
        path.display(),
        base.display()
    )
}

impl Pages {
    fn each(
        &self,
        mut visit: impl FnMut(u32, [u8; ENTRY_BYTES], &[u8]) -> Result<()>,
    ) -> Result<()> {
        let io = |e: IoError| failed("read", &self.path, &e);
        let mut from = BufReader::with_capacity(CHUNK_BYTES, &self.file);
        from.seek(SeekFrom::Start(HEADER_BYTES as u64)).map_err(io)?;
        let mut entry = [0; ENTRY_BYTES];
        let mut page = vec![0; self.header.changed.page_bytes as usize];
        for _ in 0..self.header.changed.count {
            from.read_exact(&mut entry).and_then(|()| from.read_exact(&mut page)).map_err(io)?;
            let number = u32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]);
            visit(number, entry, &page)?;
        }
        Ok(())
    }

    /// Writes the pages into the base, which is in a write transaction. The pages have the stamp.
    ///
    /// # Errors
    /// `Replaced`: the pages do not go with this base (PAGES-2).
    pub(crate) fn put(&self, base_path: &Path, base: &mut dyn Base) -> Result<()> {
        let Header { place, changed, .. } = &self.header;
        let is = base.header()?;
        if !is.fenced || is.salt != place.salt || is.generation != place.before {
            return Err(Error::Replaced(base_path.to_owned()));
        }
        base.replace_pages(changed.page_bytes, changed.change_counter)?;
        self.each(|number, _, page| base.put_page(number, page))?;
        base.set_page_count(changed.page_count)
    }
}

#[cfg(test)]
mod tests;
