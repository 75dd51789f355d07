//! The pages that a merge has written, as its transaction left them in the WAL.
//!
//! The WAL was empty before, so it has one transaction. A page that was written several times, when
//! the cache was full, counts as it was written last; a page behind the end of the database does not
//! count.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use crc32c::crc32c_append;

const WAL_HEADER_BYTES: usize = 32;
const FRAME_HEADER_BYTES: usize = 24;
/// Where page 1 has the salt.
pub const SALT: std::ops::Range<usize> = 72..76;
/// Where page 1 says which versions may read and write the file.
pub const VERSIONS: std::ops::Range<usize> = 18..20;
/// With the fence, which is up on the primary while it merges.
const FENCED: [u8; 2] = [3, 3];
/// Where page 1 has the count of the file's transactions, twice.
pub const COUNTERS: [std::ops::Range<usize>; 2] = [24..28, 92..96];
/// The primary may have made as many transactions more than the chain has, from one merge to the
/// next: each raising of the fence, and each coming to rest, is one. A higher bound would find a
/// count for more pages that differ by mistake: it is one in 2^24 with this one.
const UNTOLD_MAX: u32 = 256;

/// What a transaction has written.
#[derive(Debug)]
pub struct Written<'a> {
    wal: &'a File,
    page_bytes: usize,
    /// Pages of the database behind it.
    pub page_count: u32,
    /// Where the pages are in the WAL, by number.
    places: BTreeMap<u32, u64>,
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Reads so many bytes; `None` if the file ends before.
fn read<const N: usize>(wal: &File, at: u64) -> io::Result<Option<[u8; N]>> {
    let mut bytes = [0; N];
    match wal.read_exact_at(&mut bytes, at) {
        Ok(()) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

/// Finds the last transaction of a WAL; `None` if there is none. A WAL may be larger than memory.
///
/// # Errors
/// The file's.
pub fn last_transaction(wal: &File) -> io::Result<Option<Written<'_>>> {
    let Some(header) = read::<WAL_HEADER_BYTES>(wal, 0)? else { return Ok(None) };
    let page_bytes = match word(&header, 8) {
        1 => 65536,
        bytes => bytes as usize,
    };
    let (mut places, mut last) = (BTreeMap::new(), None);
    let mut at = WAL_HEADER_BYTES as u64;
    while let Some(frame) = read::<FRAME_HEADER_BYTES>(wal, at)?
        && frame[8..16] == header[16..24]
    {
        let (number, page_count) = (word(&frame, 0), word(&frame, 4));
        places.insert(number, at + FRAME_HEADER_BYTES as u64);
        if page_count != 0 {
            let mut places = std::mem::take(&mut places);
            places.retain(|number, _| *number <= page_count);
            last = Some(Written { wal, page_bytes, page_count, places });
        }
        at += (FRAME_HEADER_BYTES + page_bytes) as u64;
    }
    Ok(last)
}

impl Written<'_> {
    /// Reads a page; `None` if the transaction has not written it.
    ///
    /// # Errors
    /// The file's.
    pub fn page(&self, number: u32) -> io::Result<Option<Vec<u8>>> {
        let Some(at) = self.places.get(&number) else { return Ok(None) };
        let mut page = vec![0; self.page_bytes];
        self.wal.read_exact_at(&mut page, *at)?;
        Ok(Some(page))
    }

    /// The checksum that a MERGE has: CRC-32C over number and page, ascending, without the salt.
    ///
    /// # Errors
    /// The file's.
    pub fn sum(&self) -> io::Result<u32> {
        Ok(self.compare(0, self.page_count)?.0)
    }

    /// Returns the checksum, and by how much the primary's count of transactions is higher, if these
    /// are its pages but for that; `None` if they are not.
    ///
    /// The chain does not say how often the primary raised its fence, or came to rest, each in a
    /// transaction that changes nothing else. So counts are tried.
    ///
    /// # Errors
    /// The file's.
    pub fn compare(&self, sum: u32, page_count: u32) -> io::Result<(u32, Option<u32>)> {
        let mut first = self.first_page()?;
        let counter = word(&first, COUNTERS[0].start);
        let (mut behind, mut behind_bytes) = (0, 0);
        for number in self.places.range(2..).map(|(number, _)| *number) {
            let page = self.page(number)?.unwrap_or_default();
            behind = crc32c_append(crc32c_append(behind, &number.to_le_bytes()), &page);
            behind_bytes += 4 + page.len();
        }
        let mut with = |untold: u32| {
            set_counter(&mut first, counter.wrapping_add(untold));
            let first = crc32c_append(crc32c_append(0, &1_u32.to_le_bytes()), &first);
            crc32c::crc32c_combine(first, behind, behind_bytes)
        };
        let own = with(0);
        let is_as_long = page_count == self.page_count;
        let untold = (0..UNTOLD_MAX).find(|untold| is_as_long && with(*untold) == sum);
        Ok((own, untold))
    }

    /// Page 1 as the primary has it, without its salt.
    fn first_page(&self) -> io::Result<Vec<u8>> {
        let missing = || io::Error::new(io::ErrorKind::InvalidData, "a transaction without page 1");
        let mut page = self.page(1)?.ok_or_else(missing)?;
        page[SALT].fill(0);
        page[VERSIONS].copy_from_slice(&FENCED);
        Ok(page)
    }
}

/// Sets the count of transactions in page 1.
pub fn set_counter(page: &mut [u8], counter: u32) {
    for place in COUNTERS {
        page[place].copy_from_slice(&counter.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = 512;

    fn frame(number: u32, page_count: u32, salts: u64, page: &[u8]) -> Vec<u8> {
        let head = [number.to_be_bytes(), page_count.to_be_bytes()].concat();
        [&head[..], &salts.to_be_bytes(), &[0; 8], page].concat()
    }

    fn wal(frames: &[Vec<u8>]) -> File {
        let mut header = vec![0; WAL_HEADER_BYTES];
        header[8..12].copy_from_slice(&(PAGE as u32).to_be_bytes());
        header[16..24].copy_from_slice(&7_u64.to_be_bytes());
        let file = tempfile::tempfile().expect("a file");
        file.write_all_at(&[header, frames.concat()].concat(), 0).expect("it is written");
        file
    }

    fn found(wal: &File) -> Written<'_> {
        last_transaction(wal).expect("it is read").expect("there is one")
    }

    fn page(fill: u8, counter: u32) -> Vec<u8> {
        let mut page = vec![fill; PAGE];
        set_counter(&mut page, counter);
        page
    }

    #[test]
    fn the_last_transaction_has_each_page_as_it_was_written_last() {
        let one = [frame(1, 0, 7, &page(1, 5)), frame(2, 3, 7, &[2; PAGE])];
        let other = [
            frame(3, 0, 7, &[3; PAGE]),
            frame(9, 0, 7, &[9; PAGE]),
            frame(3, 0, 7, &[4; PAGE]),
            frame(1, 4, 7, &page(1, 6)),
        ];
        let behind = [frame(2, 0, 7, &[5; PAGE]), frame(2, 2, 6, &[6; PAGE])];
        let file = wal(&[&one[..], &other, &behind].concat());
        let written = found(&file);
        assert_eq!(written.page_count, 4);
        assert_eq!(written.places.keys().copied().collect::<Vec<_>>(), [1, 3]);
        assert_eq!(written.page(3).expect("it is read"), Some(vec![4; PAGE]));
        assert_eq!(written.page(2).expect("it is read"), None);
        let begun = wal(&[frame(1, 0, 7, &page(1, 1))]);
        assert!(last_transaction(&begun).expect("it is read").is_none());
        let empty = tempfile::tempfile().expect("a file");
        assert!(last_transaction(&empty).expect("it is read").is_none());
    }

    #[test]
    fn a_higher_count_of_transactions_is_found_and_nothing_else_is() {
        let with = |fill, counter| {
            wal(&[frame(1, 0, 7, &page(fill, counter)), frame(5, 5, 7, &[8; PAGE])])
        };
        let (own, primary, other) = (with(1, 10), with(1, 12), with(2, 12));
        let sum = |file: &File| found(file).sum().expect("it is read");
        let compared = |sum, page_count| found(&own).compare(sum, page_count).expect("it is read");
        assert_eq!(compared(sum(&own), 5), (sum(&own), Some(0)));
        assert_eq!(compared(sum(&primary), 5), (sum(&own), Some(2)));
        assert_eq!(compared(sum(&primary), 6), (sum(&own), None), "another length");
        assert_eq!(compared(sum(&other), 5), (sum(&own), None), "another page");
    }

    #[test]
    fn the_sum_is_over_numbers_and_pages_without_the_salt() {
        let with = |salt: u8| {
            let mut first = page(1, 1);
            first[SALT].fill(salt);
            found(&wal(&[frame(4, 0, 7, &[4; PAGE]), frame(1, 4, 7, &first)])).sum()
        };
        let mut first = page(1, 1);
        first[SALT].fill(0);
        first[VERSIONS].fill(3);
        let bytes = [&1_u32.to_le_bytes()[..], &first, &4_u32.to_le_bytes(), &[4; PAGE]].concat();
        assert_eq!(with(1).expect("it is read"), crc32c::crc32c(&bytes));
        assert_eq!(with(2).expect("it is read"), crc32c::crc32c(&bytes));
    }
}
