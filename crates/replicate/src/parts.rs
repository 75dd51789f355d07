//! The pages of an upload: its parts, in their order.
//!
//! Some parts are on their way, checked and decompressed beside each other: a restore is as fast as the processors and the
//! disk together, and a store that answers late is asked for several at a time.
//!
//! - PARTS-1 Parts come in order, each as its upload names it by hash and lengths, through the first that is otherwise.
//! - PARTS-2 [`AHEAD`] parts are in memory at most, as they are stored and as they are unpacked, beside what the caller has. A
//!   link has to carry them within the time of a request, as it has the longest record.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use futures_util::future::{FusedFuture as _, MaybeDone, maybe_done};
use tokio::sync::oneshot;

use crate::error::{Error, Result};
use crate::ids::{Hash, RecordNumber};
use crate::names;
use crate::record::compress::inflate;
use crate::record::item::each_page;
use crate::record::{Part, Parts};
use crate::store::Later;
use crate::world::World;

/// Parts that are fetched, checked or waited for.
const AHEAD: usize = 4;
/// A part with so many bytes of pages has a thread of its own. Those of a simulation are shorter.
const LONG_BYTES: u32 = 1 << 20;

/// Whose pages they are.
#[derive(Clone, Copy, Debug)]
pub struct Of {
    /// The record that names them.
    pub number: RecordNumber,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Pages of the database.
    pub page_count: u32,
}

/// Lists of pages, as `record::item::each_page` reads them.
pub struct Lists<'a> {
    world: &'a World,
    of: Of,
    parts: &'a Parts,
    /// The next part that is to be fetched.
    next: usize,
    under_way: VecDeque<MaybeDone<Later<'a, Result<Bytes>>>>,
}

impl<'a> Lists<'a> {
    /// Begins with the first part.
    pub fn new(world: &'a World, of: Of, parts: &'a Parts) -> Lists<'a> {
        Lists { world, of, parts, next: 0, under_way: VecDeque::new() }
    }

    /// Returns the next list; `None` behind the last one.
    ///
    /// # Errors
    /// [`Error::Part`], and the store's.
    pub async fn next(&mut self) -> Result<Option<Bytes>> {
        while let Some(part) = self.parts.each.get(self.next)
            && self.under_way.len() < AHEAD
        {
            let name = names::part(self.parts.upload, self.next as u32);
            let one: Later<'a, _> = Box::pin(list(self.world, self.of, *part, name));
            self.under_way.push_back(maybe_done(one));
            self.next += 1;
        }
        // All of them go on whenever one does: a simulation wakes none by itself.
        poll_fn(|context| {
            for one in &mut self.under_way {
                let _ = Pin::new(one).poll(context);
            }
            match self.under_way.front() {
                Some(first) if !first.is_terminated() => Poll::Pending,
                _ => Poll::Ready(()),
            }
        })
        .await;
        let first = self.under_way.pop_front();
        first.and_then(|mut first| Pin::new(&mut first).take_output()).transpose()
    }
}

async fn list(world: &World, of: Of, part: Part, name: String) -> Result<Bytes> {
    let stored = fetch(world, of, &name).await?;
    unpack(of, part, &name, stored).await
}

async fn fetch(world: &World, Of { number, .. }: Of, name: &str) -> Result<Bytes> {
    let bad = |why| Error::Part { number, name: name.to_owned(), why };
    match world.get(name).await {
        // Another snapshot may lead there.
        Err(Error::Store { error, .. }) if error.is_refusal() => {
            Err(bad(format!("is there, and the store {error}").into()))
        }
        found => found?.ok_or_else(|| bad("is missing".into())),
    }
}

async fn unpack(of: Of, part: Part, name: &str, stored: Bytes) -> Result<Bytes> {
    let unpacked = match part.raw_bytes {
        LONG_BYTES.. => beside(move || unpacked(of, part, &stored)).await,
        _ => unpacked(of, part, &stored),
    };
    let bad = |why: &'static str| Error::Part {
        number: of.number,
        name: name.to_owned(),
        why: why.into(),
    };
    unpacked.map_err(bad)
}

/// Computes in a thread of its own; here, where there can be none.
async fn beside<T: Send + 'static>(compute: impl Fn() -> T + Send + Sync + 'static) -> T {
    let (result, computed) = oneshot::channel();
    let compute = Arc::new(compute);
    let there = Arc::clone(&compute);
    let thread = std::thread::Builder::new().name("plait-unpack".to_owned());
    // Nobody hears of it where the caller was dropped.
    let begun = thread.spawn(move || drop(result.send(there())));
    match (begun, computed.await) {
        (Ok(_), Ok(value)) => value,
        _ => compute(),
    }
}

fn unpacked(of: Of, part: Part, stored: &Bytes) -> std::result::Result<Bytes, &'static str> {
    if stored.len() != part.stored_bytes as usize || Hash::of(stored) != part.hash {
        return Err("is damaged: its hash does not match");
    }
    let raw = inflate(stored, part.raw_bytes as usize).ok_or("cannot be decompressed")?;
    let pages = each_page(&raw, of.page_bytes).ok_or("is no list of pages")?;
    let is_within = pages.last().is_none_or(|(last, _)| last <= of.page_count);
    is_within.then_some(raw).ok_or("has pages behind the end of the database")
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;
    use crate::ids::Nonce;
    use crate::names::Upload;
    use crate::record::compress::compress_behind;
    use crate::record::item::push_page;
    use crate::simulation::stage::Stage;
    use crate::store::objects::{Missing, open};
    use crate::world::Patience;

    const PAGE_BYTES: u32 = 65536;
    const PAGES: u32 = 20;

    // holds PARTS-1
    #[test]
    fn parts_come_in_order_through_the_first_that_is_damaged() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = open(folder.path().to_str().expect("UTF-8"), Missing::Refuse).expect("a store");
        let stage = Stage::default();
        let (_, clock) = stage.world(Patience::Tries(1));
        let world =
            World::new(Rc::new(store), Rc::new(clock), stage.dice.clone(), Patience::Tries(1));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        let upload = Upload { begun: RecordNumber(2), nonce: Nonce::default(), serial: 1 };
        let mut parts = Parts { upload, each: Vec::new() };
        let mut lists = Vec::new();
        for index in 0..7 {
            let mut list = Vec::new();
            for number in index * PAGES..(index + 1) * PAGES {
                push_page(&mut list, number + 1, &[number as u8; PAGE_BYTES as usize]);
            }
            // The last one is short.
            let list = if index == 6 { list[..list.len() / PAGES as usize].to_vec() } else { list };
            let (_, stored) = compress_behind(0, &list);
            let stored = Bytes::from(stored);
            parts.each.push(Part {
                stored_bytes: stored.len() as u32,
                raw_bytes: list.len() as u32,
                hash: Hash::of(&stored),
            });
            let name = names::part(upload, index);
            runtime.block_on(world.put(&name, &stored)).expect("it is written");
            lists.push(Bytes::from(list));
        }
        let of = Of { number: RecordNumber(3), page_bytes: PAGE_BYTES, page_count: 7 * PAGES };
        let read = |of| {
            runtime.block_on(async {
                let (mut come, mut each) = (Vec::new(), Lists::new(&world, of, &parts));
                loop {
                    match each.next().await {
                        Ok(Some(list)) => come.push(list),
                        Ok(None) => return (come, None),
                        Err(error) => return (come, Some(error)),
                    }
                }
            })
        };
        assert!(read(of) == (lists.clone(), None));
        let (come, error) = read(Of { page_count: 5 * PAGES + 3, ..of });
        assert!(come == lists[..5] && error.is_some_and(|e| e.what().contains("behind the end")));
        let damaged = Bytes::from_static(b"another");
        runtime.block_on(world.put(&names::part(upload, 2), &damaged)).expect("it is written");
        let (come, error) = read(of);
        assert!(come == lists[..2] && error.is_some_and(|e| e.what().contains("is damaged")));
    }
}
