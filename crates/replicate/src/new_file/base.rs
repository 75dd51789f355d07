//! The file in the making as a file of pages.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use plait_engine::crash_point;
use plait_engine::filesystem::begin_write_out;

use super::written::{COUNTERS, SALT, VERSIONS};
use crate::ids::{Generation, Salt};
use crate::record::item::each_page;
use crate::target::TargetError;

/// Pages that follow each other are written so many bytes at a time.
const RUN_BYTES: usize = 1 << 20;
/// SQLite never writes the page at this byte, where it has its locks.
const PENDING_BYTE: u64 = 1 << 30;
/// What page 1 says of versions that may read and write it, where there is no fence.
const UNFENCED: [u8; 2] = [2, 2];
/// The same of a replica at rest: SQLite without Plait reads it, and does not write it.
const READ_ONLY: [u8; 2] = [3, 2];

/// Pages that are written to a file.
#[derive(Debug)]
pub struct Pages {
    page_bytes: u32,
    there: Numbers,
}

/// Numbers of pages that were written: of each run the first, and the one behind the last. A chain of
/// anybody's may name any page, and a run costs it a page on the disk.
#[derive(Debug, Default)]
struct Numbers(BTreeMap<u64, u64>);

impl Numbers {
    fn insert(&mut self, number: u64) {
        let before = self.0.range(..=number).next_back().map(|(first, end)| (*first, *end));
        let first = match before {
            Some((_, end)) if end > number => return,
            Some((first, end)) if end == number => first,
            _ => number,
        };
        let behind = self.0.remove(&(number + 1));
        self.0.insert(first, behind.unwrap_or(number + 1));
    }

    /// The first from `number` on that is not there.
    fn missing_from(&self, number: u64) -> u64 {
        match self.0.range(..=number).next_back() {
            Some((_, end)) if *end > number => *end,
            _ => number,
        }
    }
}

/// What page 1 says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct First {
    /// The session.
    pub salt: Salt,
    /// Through which the base is complete.
    pub generation: Generation,
}

impl Pages {
    /// Begins without any.
    pub fn new(page_bytes: u32) -> Pages {
        Pages { page_bytes, there: Numbers::default() }
    }

    /// Bytes of a page.
    pub fn page_bytes(&self) -> u32 {
        self.page_bytes
    }

    /// Writes a list of pages, as `record::item::push_page` makes them.
    ///
    /// # Errors
    /// In words.
    pub fn write(&mut self, file: &File, list: &[u8]) -> Result<(), TargetError> {
        let pages = each_page(list, self.page_bytes).ok_or("no list of pages")?;
        let (mut run, mut first) = (Vec::with_capacity(RUN_BYTES), 0);
        for (number, page) in pages {
            let number = u64::from(number);
            let behind = first + (run.len() / self.page_bytes as usize) as u64;
            if number != behind || run.len() >= RUN_BYTES {
                self.write_run(file, first, &run)?;
                run.clear();
                first = number;
            }
            run.extend_from_slice(page);
            self.there.insert(number);
        }
        self.write_run(file, first, &run)?;
        crash_point!("replica.paged");
        Ok(())
    }

    /// Writes pages that follow each other, of which the first has this number. Their way to the disk begins now:
    /// the sync in the end has less to wait for.
    fn write_run(&self, file: &File, first: u64, run: &[u8]) -> Result<(), TargetError> {
        if run.is_empty() {
            return Ok(());
        }
        let at = (first - 1) * u64::from(self.page_bytes);
        file.write_all_at(run, at).map_err(|e| io(&e))?;
        if run.len() >= RUN_BYTES {
            begin_write_out(file, at, run.len() as u64);
        }
        Ok(())
    }

    /// The first page behind page `there` that was not written, of so many.
    pub fn missing(&self, there: u32, page_count: u32) -> Option<u32> {
        let locks = PENDING_BYTE / u64::from(self.page_bytes) + 1;
        let mut missing = self.there.missing_from(u64::from(there) + 1);
        if missing == locks {
            missing = self.there.missing_from(locks + 1);
        }
        (missing <= u64::from(page_count)).then_some(missing as u32)
    }
}

/// Gives the file its length, and returns what its first page says.
///
/// # Errors
/// In words: page 1 is not that of a base with these pages.
pub fn complete(file: &File, page_bytes: u32, page_count: u32) -> Result<First, TargetError> {
    file.set_len(u64::from(page_bytes) * u64::from(page_count)).map_err(|e| io(&e))?;
    let mut page = [0; 100];
    file.read_exact_at(&mut page, 0).map_err(|e| io(&e))?;
    let word = |at: usize| u32::from_be_bytes([page[at], page[at + 1], page[at + 2], page[at + 3]]);
    let size = match u16::from_be_bytes([page[16], page[17]]) {
        1 => 65536,
        bytes => u32::from(bytes),
    };
    if !page.starts_with(b"SQLite format 3\0") || size != page_bytes || word(28) != page_count {
        return Err(format!(
            "page 1 is not that of a database of {page_count} pages of {page_bytes} bytes"
        )
        .into());
    }
    if word(SALT.start) == 0 {
        return Err("page 1 is not that of a database in concurrent mode".into());
    }
    file.write_all_at(&UNFENCED, VERSIONS.start as u64).map_err(|e| io(&e))?;
    Ok(First { salt: Salt(word(SALT.start)), generation: Generation(word(SALT.end)) })
}

/// The count of transactions in page 1.
///
/// # Errors
/// The file's.
pub fn counter(file: &File) -> io::Result<u32> {
    let mut counter = [0; 4];
    file.read_exact_at(&mut counter, COUNTERS[0].start as u64)?;
    Ok(u32::from_be_bytes(counter))
}

/// Raises the count of transactions in page 1.
///
/// # Errors
/// The file's.
pub fn raise_counter(file: &File, by: u32) -> io::Result<()> {
    let raised = counter(file)?.wrapping_add(by).to_be_bytes();
    COUNTERS.iter().try_for_each(|place| file.write_all_at(&raised, place.start as u64))
}

/// Writes the salt of a session into page 1.
///
/// # Errors
/// The file's.
pub fn set_salt(file: &File, salt: Salt) -> io::Result<()> {
    file.write_all_at(&salt.0.to_be_bytes(), SALT.start as u64)
}

/// Lets SQLite without Plait read the base, which is at rest, and not write it.
///
/// # Errors
/// The file's.
pub fn set_read_only(file: &File) -> io::Result<()> {
    file.write_all_at(&READ_ONLY, VERSIONS.start as u64)
}

/// True if a disk has no space left.
pub fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// A failure of the file.
pub fn io(error: &io::Error) -> TargetError {
    let is_full = is_full(error);
    let why = match is_full {
        true => "the disk has no space left: free some, or take a larger one".to_owned(),
        false => error.to_string(),
    };
    TargetError { why, is_full }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::item::push_page;

    #[test]
    fn a_page_that_was_not_written_is_missing() {
        let file = tempfile::tempfile().expect("a file");
        let mut pages = Pages::new(512);
        for number in [1, 2, 70] {
            let mut list = Vec::new();
            push_page(&mut list, number, &[number as u8; 512]);
            pages.write(&file, &list).expect("it is written");
        }
        assert_eq!(pages.missing(0, 2), None);
        assert_eq!(pages.missing(0, 70), Some(3));
        assert_eq!(pages.missing(69, 70), None);
        assert!(pages.write(&file, &[1, 2, 3]).is_err());
    }

    #[test]
    fn numbers_are_kept_as_runs() {
        let mut numbers = Numbers::default();
        for number in [1, 2, 9, 4, u64::from(u32::MAX), 3, 2, 8] {
            numbers.insert(number);
        }
        let last = u64::from(u32::MAX);
        let runs: Vec<(u64, u64)> = numbers.0.iter().map(|(first, end)| (*first, *end)).collect();
        assert_eq!(runs, [(1, 5), (8, 10), (last, last + 1)]);
        assert_eq!([1, 4, 5, 8, 10].map(|from| numbers.missing_from(from)), [5, 5, 5, 10, 10]);
    }

    #[test]
    fn the_page_of_the_locks_need_not_be_there() {
        let mut pages = Pages::new(65536);
        let locks = (PENDING_BYTE / 65536) as u32 + 1;
        pages.there.0.insert(1, u64::from(locks));
        assert_eq!(pages.missing(0, locks), None);
        assert_eq!(pages.missing(0, locks + 1), Some(locks + 1));
    }

    #[test]
    fn a_base_says_what_it_is_in_page_1() {
        let file = tempfile::tempfile().expect("a file");
        let mut page = vec![0; 1024];
        page[..16].copy_from_slice(b"SQLite format 3\0");
        page[16..18].copy_from_slice(&1024_u16.to_be_bytes());
        page[28..32].copy_from_slice(&2_u32.to_be_bytes());
        page[72..76].copy_from_slice(&7_u32.to_be_bytes());
        page[76..80].copy_from_slice(&9_u32.to_be_bytes());
        file.write_all_at(&page, 0).expect("it is written");
        let first = complete(&file, 1024, 2).expect("it is one");
        assert_eq!(first, First { salt: Salt(7), generation: Generation(9) });
        assert!(complete(&file, 1024, 3).is_err() && complete(&file, 512, 2).is_err());
        raise_counter(&file, 5).expect("it is written");
        let mut counter = [0; 4];
        file.read_exact_at(&mut counter, 92).expect("it is read");
        assert_eq!(counter, 5_u32.to_be_bytes());
        file.write_all_at(&[0; 4], 72).expect("it is written");
        assert!(complete(&file, 1024, 2).is_err());
    }
}
