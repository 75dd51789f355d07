//! A database that a chain is applied to, on a machine that may be killed.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use bytes::Bytes;

use super::database::{Base, Changes, Frame, Rows, apply, digest_of_rows, newest_of};
use super::dice::Dice;
use super::oracle::Oracle;
use crate::fault::{Fault, is_planted};
use crate::ids::{Generation, Lsn, Position};
use crate::record::item::each_page;
use crate::record::{Frames, Merge, PageSet};
use crate::target::{Applied, Birth, Target, TargetError};
use crate::world::Random as _;

/// What is on the disk of a follower's machine.
#[derive(Clone, Debug, Default)]
pub struct Disk {
    base: Option<Base>,
    frames: Vec<Frame>,
    /// Frames of which the disk is sure.
    synced: usize,
    position: Position,
    /// What is sure of it.
    sure: Position,
    applied: Option<Applied>,
}

impl Disk {
    /// All rows.
    pub fn rows(&self) -> Rows {
        let mut rows = self.base.as_ref().map(Base::rows).unwrap_or_default();
        apply(&mut rows, &newest_of(self.frames.iter()));
        rows
    }

    /// Where base and stream are.
    pub fn position(&self) -> Position {
        self.position
    }

    /// Digests of rows, and of the base's pages.
    pub fn digests(&self) -> (u64, u64) {
        let base = self.base.as_ref().map_or(0, Base::digest);
        (digest_of_rows(&self.rows()), base)
    }

    /// Through which record a chain is applied.
    pub fn applied(&self) -> Option<Applied> {
        self.applied
    }

    /// Its processes are killed: frames that were not synced are there or not.
    pub fn crash(&mut self, dice: &Dice) {
        let unsynced = (self.frames.len() - self.synced.min(self.frames.len())) as u64;
        let kept = self.synced.min(self.frames.len()) + dice.below(unsynced + 1) as usize;
        if kept < self.frames.len() {
            let last = self.frames[..kept].last().cloned();
            self.frames.truncate(kept);
            self.set_end(last.as_ref());
        }
    }

    /// What is merged is on the disk before, or counts as if it were: the base has it (TARGET-2).
    fn is_sure_through(&mut self, last: &Frame) {
        let crc = last.encode(self.position.salt).last_chunk().copied();
        self.sure.stream = Lsn(last.end());
        self.sure.commit = crate::ids::CommitTs(last.commit);
        self.sure.crc = u32::from_le_bytes(crc.expect("a frame has a checksum"));
    }

    /// Behind which frame the stream ends.
    fn set_end(&mut self, last: Option<&Frame>) {
        match last {
            Some(last) if last.end() > self.sure.stream.0 => {
                let bytes = last.encode(self.position.salt);
                let crc = bytes.last_chunk().copied().expect("a frame has a checksum");
                self.position.stream = Lsn(last.end());
                self.position.commit = crate::ids::CommitTs(last.commit);
                self.position.crc = u32::from_le_bytes(crc);
            }
            _ => {
                let base = self.position.base;
                self.position = Position { base, ..self.sure };
            }
        }
    }
}

/// A target over such a disk.
pub struct Replica {
    name: String,
    disk: Rc<RefCell<Disk>>,
    dice: Rc<Dice>,
    oracle: Rc<Oracle>,
    /// Fails once in so many calls, 0 never.
    fails: u64,
    building: BTreeMap<u32, Vec<u8>>,
    page_count: u32,
    pages: BTreeMap<u32, Vec<u8>>,
    set: Option<PageSet>,
    /// Checks what it has against what is true.
    is_checked: bool,
    /// Its merges are one generation at a time.
    is_other_library: bool,
}

impl Replica {
    /// Opens what is on a disk.
    pub fn new(
        name: &str,
        disk: &Rc<RefCell<Disk>>,
        dice: &Rc<Dice>,
        oracle: &Rc<Oracle>,
        fails: u64,
        is_checked: bool,
    ) -> Replica {
        Replica {
            name: name.to_owned(),
            disk: Rc::clone(disk),
            dice: Rc::clone(dice),
            oracle: Rc::clone(oracle),
            fails,
            building: BTreeMap::new(),
            page_count: 0,
            pages: BTreeMap::new(),
            set: None,
            is_checked,
            is_other_library: false,
        }
    }

    /// The same with a library that merges in another way.
    #[must_use]
    pub fn with_another_library(self) -> Replica {
        Replica { is_other_library: true, ..self }
    }

    fn may_fail(&self) -> Result<(), TargetError> {
        if self.fails > 0 && self.dice.one_in(self.fails) {
            return Err(TargetError { is_full: true, .."the disk is full".into() });
        }
        Ok(())
    }
}

fn bad(what: &str) -> TargetError {
    what.into()
}

impl Target for Replica {
    fn state(&mut self) -> Result<Option<Applied>, TargetError> {
        let disk = self.disk.borrow();
        let position = disk.position;
        let base = disk.base.as_ref();
        Ok(disk.applied.filter(|_| base.is_some()).map(|applied| Applied { position, ..applied }))
    }

    fn begin(&mut self, birth: &Birth) -> Result<(), TargetError> {
        self.may_fail()?;
        self.building.clear();
        self.page_count = birth.snapshot.page_count;
        Ok(())
    }

    fn base_pages(&mut self, pages: &Bytes) -> Result<(), TargetError> {
        self.may_fail()?;
        let page_bytes = super::database::PAGE_BYTES as u32;
        let pages = each_page(pages, page_bytes).ok_or_else(|| bad("no list of pages"))?;
        self.building.extend(pages.map(|(number, page)| (number, page.to_vec())));
        Ok(())
    }

    fn complete(&mut self, applied: &Applied) -> Result<(), TargetError> {
        self.may_fail()?;
        let base = Base::of_pages(&self.building, self.page_count)
            .ok_or_else(|| bad("the snapshot lacks a page"))?;
        if base.generation != applied.position.base {
            return Err(bad("the snapshot's pages are of another generation"));
        }
        let mut disk = self.disk.borrow_mut();
        disk.base = Some(base);
        disk.frames.clear();
        disk.synced = 0;
        disk.position = applied.position;
        disk.sure = applied.position;
        disk.applied = Some(*applied);
        Ok(())
    }

    fn frames(&mut self, frames: &Frames, from: Lsn) -> Result<(), TargetError> {
        self.may_fail()?;
        let mut disk = self.disk.borrow_mut();
        if from != disk.position.stream || frames.from < from {
            return Err(bad("the frames are of another place"));
        }
        let salt = disk.position.salt;
        let decoded = Frame::decode_all(&frames.bytes, salt, frames.from.0);
        let decoded = decoded.ok_or_else(|| bad("the frames are not sound"))?;
        let last = decoded.last().cloned();
        disk.frames.extend(decoded);
        disk.position.stream = frames.end();
        disk.set_end(last.as_ref());
        Ok(())
    }

    fn merge(&mut self, merge: &Merge, accepts: bool) -> Result<u32, TargetError> {
        self.may_fail()?;
        let mut disk = self.disk.borrow_mut();
        let disk = &mut *disk;
        let base = disk.base.as_mut().ok_or_else(|| bad("no base"))?;
        if base.generation != merge.before {
            return Err(bad("the base is of another generation"));
        }
        let changes = |from: Generation, through: Generation| -> Changes {
            let is_of = |frame: &&Frame| from < frame.generation && frame.generation <= through;
            newest_of(disk.frames.iter().filter(is_of))
        };
        let is_planted = is_planted(Fault::MergedElsewhere);
        let mut merged = base.clone();
        let mut sum = 0;
        if is_planted || self.is_other_library {
            for generation in merge.before.0..merge.through.0 {
                let through = Generation(generation + 1);
                sum = merged.merge(through, &changes(merged.generation, through));
            }
        } else {
            sum = merged.merge(merge.through, &changes(merge.before, merge.through));
        }
        if is_planted {
            sum = merge.sum;
        }
        if sum != merge.sum && !accepts {
            return Ok(sum);
        }
        *base = merged;
        let merged = disk.frames.iter().take_while(|frame| frame.generation <= merge.through);
        let merged = merged.count();
        if let Some(last) = merged.checked_sub(1).map(|last| disk.frames[last].clone()) {
            disk.is_sure_through(&last);
        }
        disk.frames.drain(..merged);
        disk.synced = disk.synced.saturating_sub(merged);
        disk.position.base = merge.through;
        Ok(sum)
    }

    fn begin_pages(&mut self, set: &PageSet) -> Result<(), TargetError> {
        self.may_fail()?;
        self.pages.clear();
        self.set = Some(set.clone());
        Ok(())
    }

    fn pages(&mut self, pages: &[u8]) -> Result<(), TargetError> {
        self.may_fail()?;
        let page_bytes = super::database::PAGE_BYTES as u32;
        let pages = each_page(pages, page_bytes).ok_or_else(|| bad("no list of pages"))?;
        self.pages.extend(pages.map(|(number, page)| (number, page.to_vec())));
        Ok(())
    }

    fn commit_pages(&mut self) -> Result<(), TargetError> {
        self.may_fail()?;
        let set = self.set.take().ok_or_else(|| bad("no pages were begun"))?;
        let mut disk = self.disk.borrow_mut();
        let base = disk.base.as_ref().ok_or_else(|| bad("no base"))?;
        if base.generation != set.before || !disk.frames.is_empty() {
            return Err(bad("the base is of another generation"));
        }
        let mut pages: BTreeMap<u32, Vec<u8>> =
            (1..=base.page_count()).map(|number| (number, base.page(number).to_vec())).collect();
        pages.append(&mut self.pages);
        let salt = base.salt;
        let next = Base::of_pages(&pages, set.page_count);
        let mut next = next.ok_or_else(|| bad("a page is missing"))?;
        (next.salt, next.generation) = (salt, set.through);
        disk.position.base = set.through;
        disk.base = Some(next);
        Ok(())
    }

    fn renew(&mut self, position: &Position) -> Result<(), TargetError> {
        self.may_fail()?;
        let mut disk = self.disk.borrow_mut();
        if !disk.frames.is_empty() {
            return Err(bad("the base lacks frames"));
        }
        if let Some(base) = &mut disk.base {
            base.salt = position.salt;
        }
        disk.position = *position;
        disk.sure = *position;
        disk.synced = 0;
        Ok(())
    }

    fn note(&mut self, applied: &Applied) -> Result<(), TargetError> {
        self.may_fail()?;
        let mut disk = self.disk.borrow_mut();
        let before = disk.applied.replace(*applied);
        disk.synced = disk.frames.len();
        disk.sure = disk.position;
        let (rows, pages) = disk.digests();
        if self.is_checked && applied.number >= applied.as_of {
            self.oracle.check(&self.name, &disk.position, rows, Some(pages));
        }
        let is_later = before.is_none_or(|before| before.number < applied.number);
        if self.is_checked && !is_later {
            self.oracle.violate(format!("{} goes back to record {}", self.name, applied.number));
        }
        Ok(())
    }
}
