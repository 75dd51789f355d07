//! Pages on their way into the file: a thread writes them while the next ones are fetched and decompressed.
//!
//! - WRITING-1 All that was put is written when [`Writing::end`] returns. What could not be is told by the call
//!   of `put` that comes next, or by `end`.

use std::fs::File;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

use bytes::Bytes;

use super::base::{Pages, io};
use crate::target::TargetError;

/// Lists of pages that wait for the thread.
const AHEAD: usize = 1;

/// A thread that writes pages. Dropped, it ends.
#[derive(Debug)]
pub struct Writing {
    lists: Option<SyncSender<Bytes>>,
    thread: Option<JoinHandle<Result<Pages, TargetError>>>,
}

impl Writing {
    /// Begins to write into a file that lacks all pages.
    ///
    /// # Errors
    /// In words.
    pub fn begin(file: &File, page_bytes: u32) -> Result<Writing, TargetError> {
        let file = file.try_clone().map_err(|e| io(&e))?;
        let (lists, put) = sync_channel::<Bytes>(AHEAD);
        let mut pages = Pages::new(page_bytes);
        let thread =
            std::thread::Builder::new().name("plait-restore".to_owned()).spawn(move || {
                put.into_iter().try_for_each(|list| pages.write(&file, &list))?;
                Ok(pages)
            });
        Ok(Writing { lists: Some(lists), thread: Some(thread.map_err(|e| io(&e))?) })
    }

    /// Hands a list of pages over, as `record::item::push_page` makes them.
    ///
    /// # Errors
    /// In words, of this list or an earlier one; nothing more is written then.
    pub fn put(&mut self, list: &Bytes) -> Result<(), TargetError> {
        match &self.lists {
            Some(lists) if lists.send(list.clone()).is_ok() => Ok(()),
            _ => self.end().and(Err("pages came behind the end".into())),
        }
    }

    /// Waits until all is written, and returns which pages that were.
    ///
    /// # Errors
    /// In words.
    pub fn end(&mut self) -> Result<Pages, TargetError> {
        self.lists = None;
        let thread = self.thread.take().ok_or("its pages could not be written")?;
        thread.join().map_err(|_| "the thread that writes its pages has panicked")?
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        // Whoever drops it has no use for the pages, nor for what it says.
        let _ = self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::item::push_page;

    // holds WRITING-1
    #[test]
    fn a_list_that_cannot_be_written_is_told_of_by_a_later_call() {
        let file = tempfile::tempfile().expect("a file");
        let list = |number| {
            let mut list = Vec::new();
            push_page(&mut list, number, &[number as u8; 512]);
            Bytes::from(list)
        };
        let mut writing = Writing::begin(&file, 512).expect("it begins");
        (1..100).for_each(|number| writing.put(&list(number)).expect("it is taken"));
        let pages = writing.end().expect("it is written");
        assert_eq!((pages.missing(0, 99), pages.missing(0, 100)), (None, Some(100)));
        assert_eq!(file.metadata().expect("its length").len(), 99 * 512);
        let mut writing = Writing::begin(&file, 512).expect("it begins");
        writing.put(&Bytes::from_static(b"no list")).expect("it is taken");
        let refused = (0..9).find_map(|_| writing.put(&list(1)).err());
        assert_eq!(refused, Some("no list of pages".into()));
        assert!(writing.put(&list(1)).is_err() && writing.end().is_err(), "again");
    }
}
