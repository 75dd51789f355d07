//! What happened to the database, as items of a record.

use crate::error::{Error, Result};
use crate::fault::{Fault, is_planted};
use crate::names::{self, Upload};
use crate::record::{Body, Break, Item, PageSet, Parts};
use crate::source::{Event, Pages};

use super::{Sidecar, ending};

/// A log that becomes longer as fast as it is shipped is not waited for behind so many records.
const RECORDS_BEHIND: u64 = 256;

impl Sidecar {
    /// Ships what has happened since the last record: nothing, and the chain has been quiet for
    /// long, is a record too.
    pub(super) async fn ship(&mut self) -> Result<()> {
        let limit = self.settings.record_bytes;
        let read = self.source.read(limit);
        self.could_read = read.is_ok();
        let events = match read {
            Ok(events) => events,
            Err(error) => {
                let text = error.to_string();
                if let Some(end) = ending(error) {
                    return Err(end);
                }
                self.world.note_trouble(&Error::Source(text));
                Vec::new()
            }
        };
        let now = self.world.clock().now();
        self.last_look = now;
        let is_idle_due = now >= self.last_record + self.settings.idle;
        if is_idle_due || !events.is_empty() {
            // A store that does not answer is the next call's trouble.
            self.check_place(self.settings.check_every).await?;
        }
        let mut items = Vec::new();
        let mut bytes = 0;
        let has_read = !events.is_empty();
        self.has_more = false;
        for event in events {
            if matches!(event, Event::Lost { .. }) && !items.is_empty() {
                self.append(std::mem::take(&mut items)).await?;
                bytes = 0;
            }
            let Some(item) = self.item(event, &mut items).await? else { continue };
            let item_bytes = item.len_max();
            if bytes + item_bytes > limit && !items.is_empty() {
                self.append(std::mem::take(&mut items)).await?;
                bytes = 0;
            }
            bytes += item_bytes;
            items.push(item);
            self.has_more |= bytes >= limit / 2;
        }
        if let Some(snapshot) = self.snapshots.take_name(&self.tracks, &items, &self.writer.tip) {
            if bytes + snapshot.len_max() > limit && !items.is_empty() {
                self.append(std::mem::take(&mut items)).await?;
            }
            items.push(snapshot);
        }
        if items.is_empty() && !is_idle_due {
            self.note_caught_up(has_read);
            return Ok(());
        }
        self.append(items).await?;
        self.note_caught_up(has_read);
        Ok(())
    }

    /// Notes that the chain has what the log had at a break: a read that is not full has come to the end of the log, and so
    /// has one that finds nothing, if not before the log could be synced.
    fn note_caught_up(&mut self, has_read: bool) {
        let now = self.world.clock().now();
        let is_end = has_read || self.ends || now >= self.last_record + self.soon();
        let tip = &self.writer.tip;
        let is_long = tip.number.0.saturating_sub(tip.broken.0) >= RECORDS_BEHIND;
        if is_long || (is_end && self.could_read && !self.has_more) {
            self.tracks.catch_up(tip.number, tip.written_ms);
        }
    }

    /// Turns an event into an item; what is large is put into parts first.
    async fn item(&mut self, event: Event, earlier: &mut Vec<Item>) -> Result<Option<Item>> {
        Ok(Some(match event {
            Event::Frames(frames) => Item::Frames(frames),
            Event::Merge(merge) => Item::Merge(merge),
            Event::Lost { .. } if is_planted(Fault::BreakUntold) => return Ok(None),
            Event::Lost { stream, base, incomplete, commit, why } => {
                self.snapshots.need_anew();
                Item::Break(Break { stream, base, incomplete, commit, why })
            }
            Event::Pages { before, through, page_bytes, page_count, pages } => {
                let body = self.body(pages, earlier).await?;
                self.snapshots.need_behind_pages();
                Item::Pages(PageSet { before, through, page_bytes, page_count, body })
            }
        }))
    }

    /// Puts pages where they can be named. The record that names an upload is the next one, so
    /// what comes before is shipped first (CHAIN-9).
    async fn body(&mut self, mut pages: Box<dyn Pages>, earlier: &mut Vec<Item>) -> Result<Body> {
        let read = |pages: &mut dyn Pages, bytes| {
            pages.next(bytes).map_err(|error| {
                let text = error.to_string();
                ending(error).unwrap_or(Error::Source(text))
            })
        };
        let mut inline = Vec::new();
        while let Some(some) = read(&mut *pages, self.settings.part_bytes)? {
            inline.extend_from_slice(&some);
            if inline.len() > self.settings.inline_bytes {
                break;
            }
        }
        if is_planted(Fault::PagesLeftOut) {
            inline.clear();
        }
        if inline.len() <= self.settings.inline_bytes {
            return Ok(Body::Inline(inline.into()));
        }
        if !earlier.is_empty() {
            self.append(std::mem::take(earlier)).await?;
        }
        let upload = self.writer.next_upload();
        let mut each = Vec::new();
        let mut list = Some(inline);
        while let Some(raw) = list {
            let (part, bytes) = super::copying::part_of(&raw);
            let name = names::part(upload, each.len() as u32);
            self.world.put(&name, &bytes).await?;
            each.push(part);
            list = read(&mut *pages, self.settings.part_bytes)?;
        }
        Ok(Body::Parts(Parts { upload, each }))
    }
}

impl super::Writer {
    /// Names an upload that no record before the next one names.
    pub(super) fn next_upload(&mut self) -> Upload {
        self.uploads += 1;
        Upload { begun: self.tip.number.next(), nonce: self.nonce, serial: self.uploads }
    }
}
