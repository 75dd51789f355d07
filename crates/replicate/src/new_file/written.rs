//! The pages that a merge has written, as its transaction left them in the WAL.
//!
//! The WAL was empty before, so it has one transaction. A page that was written several times, when
//! the cache was full, counts as it was written last; a page behind the end of the database does not
//! count.

use std::collections::BTreeMap;

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
#[derive(Debug, PartialEq, Eq)]
pub struct Written<'a> {
    /// Pages of the database behind it.
    pub page_count: u32,
    /// The pages, each by its number.
    pub pages: BTreeMap<u32, &'a [u8]>,
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Reads the last transaction of a WAL; `None` if there is none.
pub fn last_transaction(wal: &[u8]) -> Option<Written<'_>> {
    let page_bytes = match word(wal, 8)? {
        1 => 65536,
        bytes => bytes as usize,
    };
    let salts = wal.get(16..24)?;
    let frames = wal.get(WAL_HEADER_BYTES..)?.chunks_exact(FRAME_HEADER_BYTES + page_bytes);
    let (mut pages, mut last) = (BTreeMap::new(), None);
    for frame in frames.take_while(|frame| frame[8..16] == *salts) {
        pages.insert(word(frame, 0)?, &frame[FRAME_HEADER_BYTES..]);
        let page_count = word(frame, 4)?;
        if page_count != 0 {
            let mut pages = std::mem::take(&mut pages);
            pages.retain(|number, _| *number <= page_count);
            last = Some(Written { page_count, pages });
        }
    }
    last
}

impl Written<'_> {
    /// The checksum that a MERGE has: CRC-32C over number and page, ascending, without the salt.
    pub fn sum(&self) -> u32 {
        self.sum_from(self.first_page())
    }

    /// By how much the primary's count of transactions is higher, if these are its pages but for
    /// that: `None` if they are not.
    ///
    /// The chain does not say how often the primary raised its fence, or came to rest, each in a
    /// transaction that changes nothing else. So counts are tried.
    pub fn untold(&self, sum: u32, page_count: u32) -> Option<u32> {
        if page_count != self.page_count {
            return None;
        }
        let first = self.first_page()?;
        let counter = word(&first, COUNTERS[0].start)?;
        let rest: usize = self.pages.range(2..).map(|(_, page)| 4 + page.len()).sum();
        let behind = self.sum_from(None);
        let with = |untold: u32| {
            let mut page = first.clone();
            set_counter(&mut page, counter.wrapping_add(untold));
            let first = crc32c_append(crc32c_append(0, &1_u32.to_le_bytes()), &page);
            crc32c::crc32c_combine(first, behind, rest)
        };
        (0..UNTOLD_MAX).find(|untold| with(*untold) == sum)
    }

    /// Page 1 as the primary has it, without its salt.
    fn first_page(&self) -> Option<Vec<u8>> {
        let mut page = self.pages.get(&1)?.to_vec();
        page.get_mut(SALT)?.fill(0);
        page[VERSIONS].copy_from_slice(&FENCED);
        Some(page)
    }

    fn sum_from(&self, first: Option<Vec<u8>>) -> u32 {
        let first = first.iter().map(|page| (1_u32, &page[..]));
        let rest = self.pages.range(2..).map(|(number, page)| (*number, *page));
        first.chain(rest).fold(0, |sum, (number, page)| {
            crc32c_append(crc32c_append(sum, &number.to_le_bytes()), page)
        })
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

    fn wal(frames: &[Vec<u8>]) -> Vec<u8> {
        let mut header = vec![0; WAL_HEADER_BYTES];
        header[8..12].copy_from_slice(&(PAGE as u32).to_be_bytes());
        header[16..24].copy_from_slice(&7_u64.to_be_bytes());
        [header, frames.concat()].concat()
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
        let bytes = wal(&[&one[..], &other, &behind].concat());
        let written = last_transaction(&bytes).expect("there is one");
        assert_eq!(written.page_count, 4);
        assert_eq!(written.pages.keys().copied().collect::<Vec<_>>(), [1, 3]);
        assert_eq!(written.pages[&3], [4; PAGE]);
        assert_eq!(last_transaction(&wal(&[frame(1, 0, 7, &page(1, 1))])), None);
        assert_eq!(last_transaction(b"short"), None);
    }

    #[test]
    fn a_higher_count_of_transactions_is_found_and_nothing_else_is() {
        let frames = |fill, counter| {
            wal(&[frame(1, 0, 7, &page(fill, counter)), frame(5, 5, 7, &[8; PAGE])])
        };
        let (own, primary, other) = (frames(1, 10), frames(1, 12), frames(2, 12));
        let sum = |bytes: &[u8]| last_transaction(bytes).expect("there is one").sum();
        let own = last_transaction(&own).expect("there is one");
        assert_eq!(own.untold(own.sum(), 5), Some(0));
        assert_eq!(own.untold(sum(&primary), 5), Some(2));
        assert_eq!(own.untold(sum(&primary), 6), None, "another length");
        assert_eq!(own.untold(sum(&other), 5), None, "another page");
    }

    #[test]
    fn the_salt_of_page_1_does_not_count() {
        let with = |salt: u8| {
            let mut first = page(1, 1);
            first[SALT].fill(salt);
            wal(&[frame(1, 1, 7, &first)])
        };
        let sum = |bytes: Vec<u8>| last_transaction(&bytes).expect("there is one").sum();
        assert_eq!(sum(with(1)), sum(with(2)));
    }
}
