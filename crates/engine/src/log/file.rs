//! The log file `app.db-plait`: a page of identity, then slots that hold one segment each.
//!
//! All integers are little-endian.
//!
//! ```text
//! file     0     header page     4096 bytes
//!          4096  slot 0          4096 + segment_bytes
//!          ..    slot 1          ..
//!
//! header   0  magic              8 bytes  "PlaitLog"
//!          8  version            u32      2
//!         12  salt               u32      equals the base's header bytes 72..75 (FILE-3)
//!         16  base device        u64      informational
//!         24  base inode         u64      informational
//!         32  created            u64      milliseconds since 1970
//!         40  segment_bytes      u32      a power of two
//!         44  slot header bytes  u32      4096
//!         48  zero               12 bytes
//!         60  crc                u32      CRC-32C of bytes 0..60
//!
//! note     0  magic              u32      "PLTB"; at 512 in the header page
//!          4  salt               u32
//!          8  generation         u32      everything through it was in the base, on disk
//!         12  crc                u32      CRC-32C of bytes 0..12
//!
//! room     0  magic              u32      "PLTR"; at 1024 in the header page
//!          4  salt               u32
//!          8  prepared           u64      stream bytes that the slots had durable space for,
//!                                         counted from the first slot
//!         16  crc                u32      CRC-32C of bytes 0..16
//!
//! slot     0  magic              u32      "PLTS"
//!          4  salt               u32
//!          8  segment            u64      its stream bytes start at segment * segment_bytes
//!         16  generation         u32      of all its frames
//!         20  previous gen.      u32      the one before that has frames, 0 if none
//!         24  generation start   u64      stream position; the segment's own start in the first
//!         32  previous end       u64      end of the last frame of the previous generation
//!         40  zero               20 bytes
//!         60  crc                u32      CRC-32C of bytes 0..60
//!       4096  stream bytes       segment_bytes of them
//! ```
//!
//! A slot is zero-filled and synced before it counts as prepared. The first slot is prepared piece
//! by piece, so that the file of a session that writes little stays short. A slot is reused when
//! the generation in it has been merged durably. A slot's header is written with the first bytes of
//! its segment and becomes durable with them. What a slot held before cannot be mistaken for frames
//! of the new segment, because a frame states its position.
//!
//! The *note of the base* names a generation through which the base is complete. It is written in
//! place, without a sync, when that generation is on disk and before any frame that comes after it.
//! So no crash leaves a base older than the note: such a base has lost its WAL, or was replaced
//! (FILE-4). A note that cannot be read demands nothing.
//!
//! The *room* is written in the same way, after the sync of a longer file and before anything is
//! written there. So no crash leaves a shorter file: such a file was cut short, with what it held.
//!
//! The file is written under another name and renamed, so it appears complete.

use std::io;
use std::path::{Path, PathBuf};

use super::error::LogError;
use super::frame::{u32_at, u64_at};
use super::shared::Segment;
use crate::crash_point;
use crate::ids::{Generation, Lsn};
use crate::storage::{FileIdentity, Storage, StorageFile, side};

/// First bytes of a log file.
pub use crate::storage::names::LOG_MAGIC as FILE_MAGIC;
/// Version of this format.
pub const FORMAT_VERSION: u32 = 2;
/// Bytes of the header page, and of each slot before its stream bytes.
pub const PAGE_BYTES: u64 = 4096;
/// First bytes of a slot in use.
pub const SLOT_MAGIC: u32 = u32::from_le_bytes(*b"PLTS");
/// Meaningful bytes of the header page and of a slot's header.
pub const HEADER_BYTES: usize = 64;
/// Where the note of the base is: in a sector of its own.
const NOTE_OFFSET: u64 = 512;
const NOTE_BYTES: usize = 16;
const NOTE_MAGIC: u32 = u32::from_le_bytes(*b"PLTB");
/// Where the room is: in another sector.
const ROOM_OFFSET: u64 = 1024;
const ROOM_BYTES: usize = 20;
const ROOM_MAGIC: u32 = u32::from_le_bytes(*b"PLTR");
/// Largest segment size that is accepted.
const SEGMENT_BYTES_MAX: u64 = 64 << 20;
/// Largest segment number and stream position that are accepted: sums with them stay below 2^64.
const SEGMENT_NUMBER_MAX: u64 = 1 << 36;
const POSITION_MAX: u64 = 1 << 62;
/// Smallest segment size that is accepted.
const SEGMENT_BYTES_MIN: u64 = 512;

/// Parameters of a new log file.
#[derive(Debug, Clone, Copy)]
pub struct LogFileParams {
    /// Salt of the base and the log.
    pub salt: u32,
    /// Device and inode of the base, informational.
    pub base_identity: (u64, u64),
    /// Permission bits, those of the base.
    pub mode: u32,
    /// Stream bytes to prepare room for.
    pub prepared_bytes: u64,
    /// Bytes of a segment.
    pub segment_bytes: u64,
}

/// The header page, decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileHeader {
    /// Salt of the base and the log.
    pub salt: u32,
    /// Device and inode of the base when the log was made.
    pub base_identity: (u64, u64),
    /// Milliseconds since 1970.
    pub created_ms: u64,
    /// Bytes of a segment.
    pub segment_bytes: u64,
}

impl FileHeader {
    fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut b = [0; HEADER_BYTES];
        b[0..8].copy_from_slice(&FILE_MAGIC);
        b[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        b[12..16].copy_from_slice(&self.salt.to_le_bytes());
        b[16..24].copy_from_slice(&self.base_identity.0.to_le_bytes());
        b[24..32].copy_from_slice(&self.base_identity.1.to_le_bytes());
        b[32..40].copy_from_slice(&self.created_ms.to_le_bytes());
        b[40..44].copy_from_slice(&(self.segment_bytes as u32).to_le_bytes());
        b[44..48].copy_from_slice(&(PAGE_BYTES as u32).to_le_bytes());
        seal(&mut b);
        b
    }

    /// Reads and checks the first page of an open log.
    pub fn read(file: &dyn StorageFile, path: &Path) -> Result<FileHeader, LogError> {
        let mut b = [0; HEADER_BYTES];
        let n = file.read_at(&mut b, 0).map_err(|e| LogError::io("read", path, &e))?;
        let bad = |why: &str| LogError::NotALog { path: path.to_owned(), why: why.to_owned() };
        if n < HEADER_BYTES {
            return Err(bad("it is shorter than a log's first page"));
        }
        if b[0..8] != FILE_MAGIC {
            return Err(bad("it does not begin as a log does"));
        }
        let version = u32_at(&b, 8);
        if !sealed(&b) {
            return Err(bad("the checksum of its first page does not match"));
        }
        if version != FORMAT_VERSION {
            return Err(LogError::UnknownVersion { path: path.to_owned(), version });
        }
        let segment_bytes = u64::from(u32_at(&b, 40));
        if !segment_bytes.is_power_of_two()
            || !(SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX).contains(&segment_bytes)
            || u64::from(u32_at(&b, 44)) != PAGE_BYTES
        {
            return Err(bad("its first page states impossible sizes"));
        }
        Ok(FileHeader {
            salt: u32_at(&b, 12),
            base_identity: (u64_at(&b, 16), u64_at(&b, 24)),
            created_ms: u64_at(&b, 32),
            segment_bytes,
        })
    }
}

fn seal(b: &mut [u8; HEADER_BYTES]) {
    let crc = crc32c::crc32c(&b[..HEADER_BYTES - 4]);
    b[HEADER_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
}

fn sealed(b: &[u8; HEADER_BYTES]) -> bool {
    crc32c::crc32c(&b[..HEADER_BYTES - 4]) == u32_at(b, HEADER_BYTES - 4)
}

fn encode_note(salt: u32, generation: Generation) -> [u8; NOTE_BYTES] {
    let mut b = [0; NOTE_BYTES];
    b[0..4].copy_from_slice(&NOTE_MAGIC.to_le_bytes());
    b[4..8].copy_from_slice(&salt.to_le_bytes());
    b[8..12].copy_from_slice(&generation.get().to_le_bytes());
    let crc = crc32c::crc32c(&b[..NOTE_BYTES - 4]);
    b[NOTE_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
    b
}

/// Returns the note of the base in a log with this salt, zero if there is none.
pub(super) fn read_note(
    file: &dyn StorageFile,
    path: &Path,
    salt: u32,
) -> Result<Generation, LogError> {
    let mut b = [0; NOTE_BYTES];
    let n = file.read_at(&mut b, NOTE_OFFSET).map_err(|e| LogError::io("read", path, &e))?;
    let generation = Generation::new(u32_at(&b, 8));
    let is_note = n == NOTE_BYTES && b == encode_note(salt, generation);
    Ok(if is_note { generation } else { Generation::ZERO })
}

fn encode_room(salt: u32, prepared_bytes: u64) -> [u8; ROOM_BYTES] {
    let mut b = [0; ROOM_BYTES];
    b[0..4].copy_from_slice(&ROOM_MAGIC.to_le_bytes());
    b[4..8].copy_from_slice(&salt.to_le_bytes());
    b[8..16].copy_from_slice(&prepared_bytes.to_le_bytes());
    let crc = crc32c::crc32c(&b[..ROOM_BYTES - 4]);
    b[ROOM_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
    b
}

/// Returns the least length of a log with this header, zero if the room is unreadable.
pub(super) fn least_bytes(
    file: &dyn StorageFile,
    path: &Path,
    header: &FileHeader,
) -> Result<u64, LogError> {
    let mut b = [0; ROOM_BYTES];
    let n = file.read_at(&mut b, ROOM_OFFSET).map_err(|e| LogError::io("read", path, &e))?;
    if n < ROOM_BYTES {
        // The file ends before its room does, which no log has ever done.
        return Ok(ROOM_OFFSET + ROOM_BYTES as u64);
    }
    let prepared_bytes = u64_at(&b, 8);
    let is_room = b == encode_room(header.salt, prepared_bytes)
        && (1..=POSITION_MAX).contains(&prepared_bytes);
    Ok(if is_room { end_of(prepared_bytes, header.segment_bytes) } else { 0 })
}

/// Returns the length of a file with space for so many stream bytes.
fn end_of(prepared_bytes: u64, segment_bytes: u64) -> u64 {
    let last = prepared_bytes - 1;
    slot_offset((last / segment_bytes) as u32, segment_bytes)
        + PAGE_BYTES
        + last % segment_bytes
        + 1
}

impl Segment {
    pub(super) fn encode(&self, salt: u32) -> [u8; HEADER_BYTES] {
        let mut b = [0; HEADER_BYTES];
        b[0..4].copy_from_slice(&SLOT_MAGIC.to_le_bytes());
        b[4..8].copy_from_slice(&salt.to_le_bytes());
        b[8..16].copy_from_slice(&self.number.to_le_bytes());
        b[16..20].copy_from_slice(&self.generation.get().to_le_bytes());
        b[20..24].copy_from_slice(&self.previous_generation.get().to_le_bytes());
        b[24..32].copy_from_slice(&self.generation_start.get().to_le_bytes());
        b[32..40].copy_from_slice(&self.previous_end.get().to_le_bytes());
        seal(&mut b);
        b
    }

    pub(super) fn decode(b: &[u8; HEADER_BYTES], salt: u32) -> Option<Segment> {
        if u32_at(b, 0) != SLOT_MAGIC || u32_at(b, 4) != salt || !sealed(b) {
            return None;
        }
        let segment = Segment {
            number: u64_at(b, 8),
            generation: Generation::new(u32_at(b, 16)),
            previous_generation: Generation::new(u32_at(b, 20)),
            generation_start: Lsn::new(u64_at(b, 24)),
            previous_end: Lsn::new(u64_at(b, 32)),
        };
        let possible = segment.number <= SEGMENT_NUMBER_MAX
            && segment.generation_start.get().max(segment.previous_end.get()) <= POSITION_MAX;
        possible.then_some(segment)
    }
}

/// Returns the offset of a slot in a file with segments of `segment_bytes`.
pub(crate) fn slot_offset(slot: u32, segment_bytes: u64) -> u64 {
    PAGE_BYTES + u64::from(slot) * (PAGE_BYTES + segment_bytes)
}

/// An open log file of a live session. [`LogShared`](super::LogShared) has which slot holds what.
#[derive(Debug)]
pub struct LogFile {
    file: Box<dyn StorageFile>,
    path: PathBuf,
    header: FileHeader,
}

impl LogFile {
    /// Creates a log at `path`, in place of an existing one; durable when it returns. `note`
    /// receives the file's identity before the file appears at `path`.
    pub fn create(
        storage: &dyn Storage,
        path: &Path,
        params: &LogFileParams,
        note: impl FnOnce(FileIdentity),
    ) -> Result<LogFile, LogError> {
        let draft = draft_path(path);
        let header = FileHeader {
            salt: params.salt,
            base_identity: params.base_identity,
            created_ms: unix_ms(),
            segment_bytes: params.segment_bytes,
        };
        let file =
            storage.create(&draft, params.mode).map_err(|e| match open_error(&draft, &e) {
                LogError::Io { path, errno, .. } => LogError::Io { what: "create", path, errno },
                LogError::Missing { path } => {
                    LogError::Io { what: "create", path, errno: libc::ENOENT }
                }
                refused => refused,
            })?;
        let log = LogFile { file, path: path.to_owned(), header };
        let made = log.fill_new(params.prepared_bytes);
        if let Err(e) = made {
            let _ = storage.remove(&draft);
            return Err(e);
        }
        note(log.identity()?);
        crash_point!("log.create.written");
        storage.rename(&draft, path).map_err(|e| LogError::io("rename into place", path, &e))?;
        crash_point!("log.create.renamed");
        storage.sync_dir_of(path).map_err(|e| LogError::io("sync the folder of", path, &e))?;
        Ok(log)
    }

    fn fill_new(&self, bytes: u64) -> Result<(), LogError> {
        let mut page = vec![0; PAGE_BYTES as usize];
        page[..HEADER_BYTES].copy_from_slice(&self.header.encode());
        page[ROOM_OFFSET as usize..][..ROOM_BYTES]
            .copy_from_slice(&encode_room(self.header.salt, bytes));
        self.file.write_at(&page, 0).map_err(|e| self.write_error(&e))?;
        self.fill(0, bytes)?;
        self.sync()
    }

    /// Opens the log of a session that is live in shared memory.
    pub fn open(storage: &dyn Storage, path: &Path, salt: u32) -> Result<LogFile, LogError> {
        LogFile::of(storage.open(path), path, salt)
    }

    /// As [`LogFile::open`], through a file that is open already.
    pub fn opened(file: Box<dyn StorageFile>, path: &Path, salt: u32) -> Result<LogFile, LogError> {
        LogFile::of(Ok(file), path, salt)
    }

    /// As [`LogFile::open`], for reading only.
    pub fn open_read_only(
        storage: &dyn Storage,
        path: &Path,
        salt: u32,
    ) -> Result<LogFile, LogError> {
        LogFile::of(storage.open_read_only(path), path, salt)
    }

    fn of(
        file: io::Result<Box<dyn StorageFile>>,
        path: &Path,
        salt: u32,
    ) -> Result<LogFile, LogError> {
        let file = file.map_err(|e| open_error(path, &e))?;
        let header = FileHeader::read(&*file, path)?;
        if header.salt != salt {
            return Err(LogError::Foreign {
                path: path.to_owned(),
                log_salt: header.salt,
                base_salt: salt,
                has_frames: true,
            });
        }
        Ok(LogFile { file, path: path.to_owned(), header })
    }

    /// True if the file at `path` is a log with this salt, or begins with zeros alone, so that
    /// nothing says whose it is.
    pub fn is_of(storage: &dyn Storage, path: &Path, salt: u32) -> Result<bool, LogError> {
        let file = match storage.open_read_only(path) {
            Ok(file) => file,
            Err(e) => {
                return match open_error(path, &e) {
                    LogError::Missing { .. } | LogError::NotALog { .. } => Ok(false),
                    other => Err(other),
                };
            }
        };
        let mut first = [0; HEADER_BYTES];
        let n = file.read_at(&mut first, 0).map_err(|e| LogError::io("read", path, &e))?;
        if first[..n].iter().all(|byte| *byte == 0) {
            return Ok(true);
        }
        Ok(FileHeader::read(&*file, path).is_ok_and(|header| header.salt == salt))
    }

    /// Removes a log whose every frame is in the base; durable when it returns. The file may be
    /// missing. Another file than `meant` stays (SIDE-4 in `side.rs`).
    pub fn remove(
        storage: &dyn Storage,
        path: &Path,
        meant: Option<FileIdentity>,
    ) -> Result<(), LogError> {
        let there = storage.identity_at(path).map_err(|e| LogError::io("look at", path, &e))?;
        let log = path.to_owned();
        let is_meant = there.is_some() && there == meant;
        // The next `create` reports what is in the way.
        let _ = storage.remove(&draft_path(path));
        if is_meant {
            match storage.remove(&log) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => {
                    return Err(LogError::io("remove", &log, &e));
                }
                _ => {}
            }
        }
        storage.sync_dir_of(path).map_err(|e| LogError::io("sync the folder of", path, &e))
    }

    /// The header page.
    pub fn header(&self) -> &FileHeader {
        &self.header
    }

    /// Device and inode of the file.
    pub fn identity(&self) -> Result<FileIdentity, LogError> {
        self.file.identity().map_err(|e| LogError::io("look at", &self.path, &e))
    }

    /// False if the file is known to be missing under its name, or shorter than `len_bytes`.
    pub fn is_whole(&self, len_bytes: u64) -> bool {
        // A file that cannot be looked at may be there.
        let len = self.file.len_at(&self.path).unwrap_or(Some(u64::MAX));
        len.is_some_and(|len| len >= len_bytes)
    }

    /// The file's name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes of the file.
    pub fn len_bytes(&self) -> Result<u64, LogError> {
        self.file.len_bytes().map_err(|e| LogError::io("measure", &self.path, &e))
    }

    /// Writes zeros over the room for stream bytes `from..to`, counted from the first slot, and
    /// over the headers of slots that begin there, so that their space is allocated. Not synced.
    pub(super) fn fill(&self, from: u64, to: u64) -> Result<(), LogError> {
        let segment = self.header.segment_bytes;
        let mut from = from;
        while from < to {
            let end = to.min((from / segment + 1) * segment);
            let slot = slot_offset((from / segment) as u32, segment);
            let within = |at: u64| slot + PAGE_BYTES + at % segment;
            let first = if from.is_multiple_of(segment) { slot } else { within(from) };
            self.write_zeros(first, within(end - 1) + 1)?;
            from = end;
        }
        Ok(())
    }

    fn write_zeros(&self, from: u64, to: u64) -> Result<(), LogError> {
        let zeros = vec![0u8; (64 << 10).min(to - from) as usize];
        let mut at = from;
        while at < to {
            let n = zeros.len().min((to - at) as usize);
            self.file.write_at(&zeros[..n], at).map_err(|e| self.write_error(&e))?;
            at += n as u64;
        }
        Ok(())
    }

    /// Writes a slot's header.
    pub(super) fn write_slot_header(&self, slot: u32, segment: &Segment) -> Result<(), LogError> {
        let at = slot_offset(slot, self.header.segment_bytes);
        self.file.write_at(&segment.encode(self.header.salt), at).map_err(|e| self.write_error(&e))
    }

    /// Writes the note of the base; not synced.
    pub(super) fn write_note(&self, generation: Generation) -> Result<(), LogError> {
        let note = encode_note(self.header.salt, generation);
        self.file.write_at(&note, NOTE_OFFSET).map_err(|e| self.write_error(&e))
    }

    /// Writes the room: how much space is durable. Not synced.
    pub(super) fn write_room(&self, prepared_bytes: u64) -> Result<(), LogError> {
        let room = encode_room(self.header.salt, prepared_bytes);
        self.file.write_at(&room, ROOM_OFFSET).map_err(|e| self.write_error(&e))
    }

    /// Writes stream bytes that start at `lsn` into the slot of their segment.
    pub(super) fn write_stream(&self, slot: u32, lsn: Lsn, bytes: &[u8]) -> Result<(), LogError> {
        let within = lsn.get() & (self.header.segment_bytes - 1);
        debug_assert!(within + bytes.len() as u64 <= self.header.segment_bytes);
        let at = slot_offset(slot, self.header.segment_bytes) + PAGE_BYTES + within;
        self.file.write_at(bytes, at).map_err(|e| self.write_error(&e))
    }

    /// Reads stream bytes that start at `lsn` from the slot of their segment; returns how many there
    /// were.
    pub(super) fn read_stream(
        &self,
        slot: u32,
        lsn: Lsn,
        bytes: &mut [u8],
    ) -> Result<usize, LogError> {
        let within = lsn.get() & (self.header.segment_bytes - 1);
        debug_assert!(within + bytes.len() as u64 <= self.header.segment_bytes);
        let at = slot_offset(slot, self.header.segment_bytes) + PAGE_BYTES + within;
        self.file.read_at(bytes, at).map_err(|e| LogError::io("read", &self.path, &e))
    }

    pub(super) fn sync(&self) -> Result<(), LogError> {
        self.file.sync_data().map_err(|e| LogError::io("sync", &self.path, &e))
    }

    fn write_error(&self, e: &io::Error) -> LogError {
        match e.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT) => LogError::NoSpace { path: self.path.clone() },
            _ => LogError::io("write", &self.path, e),
        }
    }
}

pub(super) fn open_error(path: &Path, e: &io::Error) -> LogError {
    if e.kind() == io::ErrorKind::NotFound {
        return LogError::Missing { path: path.to_owned() };
    }
    if let Some(why) = side::refusal(e) {
        return LogError::NotALog { path: path.to_owned(), why };
    }
    LogError::io("open", path, e)
}

fn draft_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("-new");
    PathBuf::from(name)
}

fn unix_ms() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |d| d.as_millis() as u64)
}
