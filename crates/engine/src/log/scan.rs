//! Reading the log after a crash: which frames it has, where they end, and whether any are damaged.
//!
//! Recovery follows the chain of checksums from the first generation that the base does not
//! include, up to a position without a valid frame. That is either the end (what followed was never
//! synced, so no commit there was acknowledged as durable) or damage. The rule (FILE-5): bytes that
//! had been on disk are gone if any valid frame further on states that the log was durable beyond
//! that position, or, where the first generation is missing, that a generation the base lacks was
//! durable. Otherwise the rest is the remains of a group that was never synced. It is dropped,
//! whole frames included, since a whole frame may build on a lost one.
//!
//! This rule cannot tell damage of the very last synced frame from a torn write. Nor can any other
//! that costs the commit nothing.
//!
//! Frames of generations that the base includes are skipped (FILE-4). A base older than the log's
//! note demands lacks more than frames can bring, and is refused. Nothing is written here.
//!
//! What is dropped must stay dropped. A generation after the end is in segments of its own and is
//! sound by itself: for a base that includes the generation before it, it would be the beginning of
//! the log. So the summary has the newest generation of which the file has anything, replayed or
//! dropped, and recovery stamps that one. For a base with that stamp the same file holds nothing
//! (proof in `session.rs`).

use std::path::{Path, PathBuf};

use super::error::LogError;
use super::file::{
    FileHeader, HEADER_BYTES, PAGE_BYTES, least_bytes, open_error, read_note, slot_offset,
};
use super::frame::{self, BadFrame, FRAME_ALIGN, FRAME_HEADER_BYTES, FRAME_MAGIC, Frame};
use super::moment::Tail;
use super::shared::MAX_SLOTS;
use super::shared::Segment;
use crate::ids::{CommitTs, Generation, Lsn};
use crate::storage::{Storage, StorageFile};

/// Longest frame that is accepted: twice what a session writes.
const FRAME_BYTES_MAX: usize = 16 << 20;
/// Newest generation that is accepted: a stamped number must leave room for later ones.
const GENERATION_MAX: Generation = Generation::new(u32::MAX / 2);

/// What a log holds for a base.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogSummary {
    /// Frames to replay.
    pub frames: u64,
    /// Their ops.
    pub ops: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Generations that they belong to, first and last; zero if there are no frames.
    pub generations: (Generation, Generation),
    /// Their commits, first and last; zero if there are no frames.
    pub commits: (CommitTs, CommitTs),
    /// Where they end.
    pub end: Lsn,
    /// Newest generation of which the file has a segment or a frame, replayed, dropped or merged;
    /// zero if there is none.
    pub newest: Generation,
    /// True if remains of a group that was never synced follow the end.
    pub torn_tail: bool,
    /// Slots of the file that hold generations the base already includes.
    pub merged_slots: u32,
    /// Slots of the file.
    pub slots: u32,
    /// Milliseconds since 1970, from the header page.
    pub created_ms: u64,
    /// Device and inode of the base when the log was made.
    pub base_identity: (u64, u64),
}

/// A log that has been read through and found sound.
#[derive(Debug)]
pub struct LogScan {
    stream: Stream,
    first: Option<Lsn>,
    base_generation: Generation,
    summary: LogSummary,
}

/// Where the reading stopped.
enum Stop {
    End(Lsn),
    Damage(Lsn, BadFrame),
}

impl LogScan {
    /// Reads the whole log at `path` for a base with this salt that is complete through
    /// `base_generation`.
    ///
    /// # Errors
    /// [`LogError::Missing`], [`LogError::NotALog`], [`LogError::UnknownVersion`],
    /// [`LogError::Foreign`], [`LogError::CutShort`], [`LogError::OlderBase`],
    /// [`LogError::Corrupt`], or [`LogError::Io`].
    pub fn open(
        storage: &dyn Storage,
        path: &Path,
        salt: u32,
        base_generation: Generation,
    ) -> Result<LogScan, LogError> {
        LogScan::read(storage, path, salt, base_generation, None)
    }

    /// As [`LogScan::open`], with what a ring has after the file's end, if that continues the file
    /// (TAIL-2 in moment.rs).
    ///
    /// # Errors
    /// As [`LogScan::open`].
    pub fn open_continued(
        storage: &dyn Storage,
        path: &Path,
        salt: u32,
        base_generation: Generation,
        tail: Option<Tail>,
    ) -> Result<LogScan, LogError> {
        let alone = LogScan::open(storage, path, salt, base_generation)?;
        if tail.is_none() {
            return Ok(alone);
        }
        match LogScan::read(storage, path, salt, base_generation, tail) {
            Ok(longer) if longer.summary.frames > alone.summary.frames => Ok(longer),
            _ => Ok(alone),
        }
    }

    fn read(
        storage: &dyn Storage,
        path: &Path,
        salt: u32,
        base_generation: Generation,
        tail: Option<Tail>,
    ) -> Result<LogScan, LogError> {
        let file = storage.open_read_only(path).map_err(|e| open_error(path, &e))?;
        let header = FileHeader::read(&*file, path)?;
        let mut stream = Stream::open(file, path, &header)?;
        if header.salt != salt {
            return Err(LogError::Foreign {
                path: path.to_owned(),
                log_salt: header.salt,
                base_salt: salt,
                has_frames: stream.has_frames()?,
            });
        }
        let least_bytes = least_bytes(&*stream.file, path, &header)?;
        if stream.len_bytes < least_bytes {
            return Err(LogError::CutShort {
                path: path.to_owned(),
                len_bytes: stream.len_bytes,
                least_bytes,
            });
        }
        let noted = stream.noted()?;
        if noted > base_generation {
            return Err(LogError::OlderBase {
                path: path.to_owned(),
                noted,
                base: base_generation,
            });
        }
        if let Some(tail) = tail {
            stream.continue_with(tail, base_generation);
        }
        stream.sort(base_generation)?;
        let mut scan = LogScan {
            first: stream.segments.first().map(|s| s.0.generation_start),
            summary: LogSummary {
                merged_slots: stream.merged_slots,
                slots: stream.slots,
                created_ms: header.created_ms,
                base_identity: header.base_identity,
                newest: stream.newest,
                ..LogSummary::default()
            },
            stream,
            base_generation,
        };
        scan.examine()?;
        if scan.summary.newest > GENERATION_MAX {
            return Err(scan.corrupt(
                scan.summary.end,
                format!("it names the impossible generation {}", scan.summary.newest),
            ));
        }
        Ok(scan)
    }

    /// Returns the salt of the log at `path`.
    ///
    /// # Errors
    /// As [`LogScan::open`], except [`LogError::Foreign`], [`LogError::CutShort`],
    /// [`LogError::OlderBase`] and [`LogError::Corrupt`].
    pub fn salt_of(storage: &dyn Storage, path: &Path) -> Result<u32, LogError> {
        let file = storage.open_read_only(path).map_err(|e| open_error(path, &e))?;
        Ok(FileHeader::read(&*file, path)?.salt)
    }

    /// Returns the generation of the note in the log at `path`, through which its base is complete
    /// at least; zero if the log has another salt.
    ///
    /// # Errors
    /// As [`LogScan::salt_of`].
    pub fn noted(storage: &dyn Storage, path: &Path, salt: u32) -> Result<Generation, LogError> {
        let file = storage.open_read_only(path).map_err(|e| open_error(path, &e))?;
        FileHeader::read(&*file, path)?;
        read_note(&*file, path, salt).map(believed)
    }

    /// Returns the newest generation of which the log at `path` has anything, or that its note
    /// names. The log may be unsound.
    ///
    /// # Errors
    /// As [`LogScan::open`], except [`LogError::CutShort`], [`LogError::OlderBase`] and
    /// [`LogError::Corrupt`].
    pub fn newest_generation(
        storage: &dyn Storage,
        path: &Path,
        salt: u32,
    ) -> Result<Generation, LogError> {
        let file = storage.open_read_only(path).map_err(|e| open_error(path, &e))?;
        let header = FileHeader::read(&*file, path)?;
        let mut stream = Stream::open(file, path, &header)?;
        if header.salt != salt {
            let (path, log_salt) = (path.to_owned(), header.salt);
            let has_frames = stream.has_frames()?;
            return Err(LogError::Foreign { path, log_salt, base_salt: salt, has_frames });
        }
        let mut newest = stream.newest.max(stream.noted()?);
        stream.each_frame_anywhere(|frame| newest = newest.max(frame.generation))?;
        Ok(newest.min(GENERATION_MAX))
    }

    /// What was found.
    pub fn summary(&self) -> &LogSummary {
        &self.summary
    }

    /// Calls `apply` for each frame, oldest first. May be repeated.
    pub fn replay<E: From<LogError>>(
        &mut self,
        mut apply: impl FnMut(&Frame<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let end = self.summary.end;
        let mut failure = None;
        self.follow(|frame| {
            if frame.end() > end {
                return false;
            }
            match apply(frame) {
                Ok(()) => true,
                Err(e) => {
                    failure = Some(e);
                    false
                }
            }
        })?;
        failure.map_or(Ok(()), Err)
    }

    fn examine(&mut self) -> Result<(), LogError> {
        let Some(first) = self.first else {
            return self.check_behind(None);
        };
        if let Some((s, _)) = self.stream.segments.first()
            && s.previous_generation > self.base_generation
        {
            // Frames of a generation between the base and this one existed and are gone.
            self.summary.end = first;
            self.first = None;
            return self.check_behind(None);
        }
        let mut summary = self.summary;
        summary.end = first;
        let mut disorder = None;
        let stop = self.follow(|frame| {
            if frame.commit_ts <= summary.commits.1 {
                disorder = Some(frame.lsn);
                return false;
            }
            if summary.frames == 0 {
                summary.generations.0 = frame.generation;
                summary.commits.0 = frame.commit_ts;
            }
            summary.generations.1 = frame.generation;
            summary.commits.1 = frame.commit_ts;
            summary.frames += 1;
            summary.ops += u64::from(frame.op_count);
            summary.bytes += frame.len_bytes();
            summary.end = frame.end();
            true
        })?;
        if let Some(at) = disorder {
            return Err(self.corrupt(at, "its commits are out of order".to_owned()));
        }
        self.summary = summary;
        match stop {
            Stop::Damage(at, BadFrame::BadOps) => {
                Err(self.corrupt(at, BadFrame::BadOps.why().to_owned()))
            }
            Stop::End(at) | Stop::Damage(at, _) => self.check_behind(Some(at)),
        }
    }

    fn corrupt(&self, at: Lsn, why: String) -> LogError {
        LogError::Corrupt { path: self.stream.path.clone(), at, why }
    }

    /// Walks the valid frames until `visit` returns false or no valid frame follows.
    fn follow(&mut self, mut visit: impl FnMut(&Frame<'_>) -> bool) -> Result<Stop, LogError> {
        let Some(mut at) = self.first else {
            return Ok(Stop::End(self.summary.end));
        };
        let mut generation = self.stream.segments[0].0.generation;
        let (mut prev_crc, mut has_rows) = (0, false);
        let mut bytes = Vec::new();
        loop {
            let why = match self.stream.frame(at, &mut bytes)? {
                Ok(f) if f.generation == generation && f.prev_crc == prev_crc => {
                    if !visit(&f) {
                        return Ok(Stop::End(at));
                    }
                    prev_crc = f.crc;
                    at = f.end();
                    has_rows |= f.ops().next().is_some();
                    continue;
                }
                Ok(_) => BadFrame::OtherPlace,
                Err(why) => why,
            };
            match self.stream.next_generation(at, generation) {
                // TAIL-1 in moment.rs.
                Some(next) if !has_rows && self.stream.is_in_tail_alone(next.number) => {
                    return Ok(Stop::Damage(at, why));
                }
                Some(next) => {
                    at = next.generation_start;
                    generation = next.generation;
                    (prev_crc, has_rows) = (0, false);
                }
                None => return Ok(Stop::Damage(at, why)),
            }
        }
    }

    /// Looks after the end for proof that something was durable there. `at` is `None` if no frame
    /// was found.
    fn check_behind(&mut self, at: Option<Lsn>) -> Result<(), LogError> {
        let base = self.base_generation;
        let mut found = None;
        let mut torn = false;
        let mut newest = self.summary.newest;
        self.stream.each_frame_anywhere(|frame| {
            newest = newest.max(frame.generation);
            if frame.generation <= base || at.is_some_and(|at| frame.lsn < at) {
                return;
            }
            torn = true;
            let proves = match at {
                Some(at) => frame.durable_lsn > at,
                None => frame.durable_generation > base,
            };
            if proves && found.is_none() {
                found = Some((frame.lsn, frame.durable_lsn));
            }
        })?;
        self.summary.torn_tail = torn;
        self.summary.newest = newest;
        let Some((witness, durable)) = found else {
            return Ok(());
        };
        let position = at.unwrap_or(self.summary.end);
        let what = match at {
            Some(_) => "a frame there is damaged or missing",
            None => "the generation that follows the base is missing",
        };
        Err(self.corrupt(
            position,
            format!(
                "{what}, yet the frame at {witness} says that the log was on disk through {durable}"
            ),
        ))
    }
}

/// Ignores a note that names an impossible generation.
fn believed(noted: Generation) -> Generation {
    if noted > GENERATION_MAX { Generation::ZERO } else { noted }
}

/// The file as a stream of positions.
#[derive(Debug)]
pub(super) struct Stream {
    file: Box<dyn StorageFile>,
    path: PathBuf,
    salt: u32,
    len_bytes: u64,
    segment_bytes: u64,
    slots: u32,
    merged_slots: u32,
    /// Newest generation that a slot's header names.
    newest: Generation,
    /// Segments to read with their slots, in order.
    segments: Vec<(Segment, u32)>,
    /// Slots without a valid header. Their bytes may still hold frames.
    nameless: Vec<u32>,
    /// What a ring has after the file's end. Segments that only it has get slot numbers after those
    /// of the file.
    tail: Option<Tail>,
    cached: Option<u32>,
    cache: Vec<u8>,
}

impl Stream {
    pub(super) fn open(
        file: Box<dyn StorageFile>,
        path: &Path,
        header: &FileHeader,
    ) -> Result<Stream, LogError> {
        let len = file.len_bytes().map_err(|e| LogError::io("measure", path, &e))?;
        let stride = PAGE_BYTES + header.segment_bytes;
        let slots = len.saturating_sub(PAGE_BYTES).div_ceil(stride);
        if slots > u64::from(MAX_SLOTS) {
            // A file of holes may have any length, and reading it would take as long.
            let why = "it is longer than any log".to_owned();
            return Err(LogError::NotALog { path: path.to_owned(), why });
        }
        let mut stream = Stream {
            file,
            path: path.to_owned(),
            salt: header.salt,
            len_bytes: len,
            segment_bytes: header.segment_bytes,
            slots: u32::try_from(slots).unwrap_or(u32::MAX),
            merged_slots: 0,
            newest: Generation::ZERO,
            segments: Vec::new(),
            nameless: Vec::new(),
            tail: None,
            cached: None,
            cache: Vec::new(),
        };
        for slot in 0..stream.slots {
            let mut b = [0; HEADER_BYTES];
            let n = stream.read(slot_offset(slot, stream.segment_bytes), &mut b)?;
            match Segment::decode(&b, stream.salt) {
                Some(segment) if n == HEADER_BYTES => {
                    stream.newest = stream.newest.max(segment.generation);
                    stream.segments.push((segment, slot));
                }
                _ => stream.nameless.push(slot),
            }
        }
        Ok(stream)
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize, LogError> {
        self.file.read_at(buf, offset).map_err(|e| LogError::io("read", &self.path, &e))
    }

    /// The generation that the note of the base demands.
    fn noted(&self) -> Result<Generation, LogError> {
        read_note(&*self.file, &self.path, self.salt).map(believed)
    }

    /// The last segment that a slot's header names, 0 if there is none. Before [`Stream::sort`].
    pub(super) fn last_segment(&self) -> u64 {
        self.segments.iter().map(|(s, _)| s.number).max().unwrap_or(0)
    }

    /// Adds what a ring has, for a base that is complete through `base`. Before [`Stream::sort`].
    fn continue_with(&mut self, tail: Tail, base: Generation) {
        if tail.salt != self.salt || tail.segment_bytes != self.segment_bytes {
            return;
        }
        for (segment, slot) in tail.segments.iter().zip(self.slots..) {
            let in_file = self.segments.iter().find(|(s, _)| s.number == segment.number);
            match in_file {
                Some((known, _)) if known == segment => {}
                // The ring and the file are of different moments.
                Some(_) => return,
                None if Tail::relies_on_more_than(base, segment) => break,
                None => {
                    self.newest = self.newest.max(segment.generation);
                    self.segments.push((*segment, slot));
                }
            }
        }
        self.tail = Some(tail);
    }

    fn is_in_tail_alone(&self, number: u64) -> bool {
        self.slot_of(number).is_some_and(|slot| slot >= self.slots)
    }

    /// Keeps the segments that the base lacks, in order.
    pub(super) fn sort(&mut self, base: Generation) -> Result<(), LogError> {
        let all = self.segments.len();
        self.segments.retain(|(s, _)| s.generation > base);
        self.merged_slots = (all - self.segments.len()) as u32;
        self.segments.sort_by_key(|(s, _)| s.number);
        for pair in self.segments.windows(2) {
            if pair[0].0.number == pair[1].0.number || pair[0].0.generation > pair[1].0.generation {
                return Err(LogError::Corrupt {
                    path: self.path.clone(),
                    at: Lsn::new(pair[1].0.number.saturating_mul(self.segment_bytes)),
                    why: "two of its segments contradict each other".to_owned(),
                });
            }
        }
        Ok(())
    }

    fn slot_of(&self, number: u64) -> Option<u32> {
        let i = self.segments.binary_search_by_key(&number, |(s, _)| s.number).ok()?;
        Some(self.segments[i].1)
    }

    /// Returns the first segment of the generation after `generation`, if `generation` ended at
    /// `at`.
    fn next_generation(&self, at: Lsn, generation: Generation) -> Option<Segment> {
        let boundary = at.get().div_ceil(self.segment_bytes);
        let i = self.segments.binary_search_by_key(&boundary, |(s, _)| s.number).ok()?;
        let next = self.segments[i].0;
        let follows = next.generation > generation
            && next.generation_start.get() == boundary * self.segment_bytes
            && next.previous_end == at
            && next.previous_generation == generation;
        follows.then_some(next)
    }

    fn load(&mut self, slot: u32) -> Result<(), LogError> {
        if self.cached == Some(slot) {
            return Ok(());
        }
        self.cached = None;
        let mut cache = std::mem::take(&mut self.cache);
        cache.clear();
        if slot < self.slots {
            let at = slot_offset(slot, self.segment_bytes) + PAGE_BYTES;
            // As much as the file has: its header may state any size.
            cache.resize(self.segment_bytes.min(self.len_bytes.saturating_sub(at)) as usize, 0);
            let n = self.read(at, &mut cache)?;
            cache.truncate(n);
        }
        let number = self.segments.iter().find(|(_, its)| *its == slot).map(|(s, _)| s.number);
        if let Some((tail, number)) = self.tail.as_ref().zip(number) {
            tail.patch(number, &mut cache);
        }
        self.cache = cache;
        self.cached = Some(slot);
        Ok(())
    }

    /// Appends stream bytes from `at` on to `out`, at most `len`, as far as the file has them.
    fn collect(&mut self, at: Lsn, len: usize, out: &mut Vec<u8>) -> Result<(), LogError> {
        let target = out.len() + len;
        let mut at = at.get();
        while out.len() < target {
            let Some(slot) = self.slot_of(at / self.segment_bytes) else {
                return Ok(());
            };
            self.load(slot)?;
            let within = (at % self.segment_bytes) as usize;
            let Some(rest) = self.cache.get(within..) else {
                return Ok(());
            };
            let n = rest.len().min(target - out.len());
            out.extend_from_slice(&rest[..n]);
            at += n as u64;
            if n == 0 {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Returns the frame at a position, in the memory of `bytes`.
    pub(super) fn frame<'b>(
        &mut self,
        at: Lsn,
        bytes: &'b mut Vec<u8>,
    ) -> Result<Result<Frame<'b>, BadFrame>, LogError> {
        bytes.clear();
        self.collect(at, FRAME_HEADER_BYTES, bytes)?;
        let len = match frame::stated_len(bytes, at) {
            Ok(len) if len <= FRAME_BYTES_MAX => len,
            Ok(_) => return Ok(Err(BadFrame::BadLength)),
            Err(why) => return Ok(Err(why)),
        };
        self.collect(at + FRAME_HEADER_BYTES as u64, len - FRAME_HEADER_BYTES, bytes)?;
        Ok(Frame::parse(bytes, self.salt, at))
    }

    /// Calls `visit` for every valid frame in the file whose segment may matter, in no order.
    fn each_frame_anywhere(&mut self, mut visit: impl FnMut(&Frame<'_>)) -> Result<(), LogError> {
        let named: Vec<_> = self.segments.iter().map(|(s, slot)| (Some(s.number), *slot)).collect();
        let nameless: Vec<_> = self.nameless.iter().map(|slot| (None, *slot)).collect();
        let mut bytes = Vec::new();
        // Apparent frames may overlap, but not everywhere: this bounds a file that was made to be
        // slow to read.
        let mut budget = 4 * u64::from(self.slots) * self.segment_bytes + FRAME_BYTES_MAX as u64;
        for (number, slot) in named.into_iter().chain(nameless) {
            self.load(slot)?;
            for (offset, lsn) in self.candidates() {
                if budget == 0 {
                    let why = "more of it looks like frames than it can hold".to_owned();
                    return Err(LogError::Corrupt { path: self.path.clone(), at: lsn, why });
                }
                let expected = number.is_none_or(|n| lsn.get() / self.segment_bytes == n);
                if !expected {
                    continue;
                }
                self.load(slot)?;
                let here = &self.cache[offset..];
                let stated = frame::stated_len(here, lsn);
                if let Ok(len) = stated {
                    budget = budget.saturating_sub(len.min(FRAME_BYTES_MAX) as u64);
                }
                match stated {
                    Ok(len) if len <= here.len() => {
                        if let Ok(frame) = Frame::parse(here, self.salt, lsn) {
                            visit(&frame);
                        }
                    }
                    Ok(_) if number.is_some() => {
                        if let Ok(frame) = self.frame(lsn, &mut bytes)? {
                            visit(&frame);
                        }
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Returns the offsets in the loaded slot where a frame seems to start, each with the position
    /// that it states.
    fn candidates(&self) -> Vec<(usize, Lsn)> {
        let magic = FRAME_MAGIC.to_le_bytes();
        self.cache
            .chunks_exact(FRAME_ALIGN)
            .enumerate()
            .filter(|(_, chunk)| chunk[..4] == magic)
            .map(|(i, _)| i * FRAME_ALIGN)
            .filter(|offset| offset + 16 <= self.cache.len())
            .map(|offset| (offset, Lsn::new(frame::u64_at(&self.cache, offset + 8))))
            .filter(|(offset, lsn)| lsn.get() % self.segment_bytes == *offset as u64)
            .collect()
    }

    fn has_frames(&mut self) -> Result<bool, LogError> {
        let mut any = false;
        self.each_frame_anywhere(|_| any = true)?;
        Ok(any)
    }
}
