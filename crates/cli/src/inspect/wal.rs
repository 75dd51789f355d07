//! SQLite's WAL, read without touching it: its committed frames, and page 1 as the last commit left it.
//!
//! The format is that of SQLite's `walformat.html`: a header of 32 bytes, then frames of a 24-byte header and a page, with
//! checksums that run on from frame to frame. The WAL ends at the first frame that does not fit, and
//! frames behind the last commit do not count.

use std::io::{self, BufReader, ErrorKind, Read};
use std::path::Path;
use std::time::SystemTime;

use plait_engine::belongs::FirstPage;
use plait_engine::storage::side;

use super::base::HEADER_BYTES as HEAD_BYTES;
use super::pairing::head_of;

const HEADER_BYTES: usize = 32;
const FRAME_HEADER_BYTES: usize = 24;
const MAGIC: u32 = 0x377f_0682;

/// What a WAL holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wal {
    /// Size of the file.
    pub bytes: u64,
    /// Frames through the last commit.
    pub frames: u64,
    /// Commits.
    pub commits: u64,
    /// Page 1 of the last commit, if a frame of the WAL holds it.
    pub page_1: Option<Vec<u8>>,
    /// Page 1 after each commit that changed it, oldest first.
    pub first_pages: Vec<FirstPage>,
    /// The beginning of each of them.
    pub heads: Vec<[u8; HEAD_BYTES]>,
    /// Size of a page.
    pub page_bytes: u32,
    /// Pages of the database after the last commit.
    pub size_pages: u32,
    /// The least and the most pages that commits before the first one of page 1 say; `None` if there is none.
    pub sizes_before: Option<(u32, u32)>,
    /// Number and print of the page in each frame through the last commit.
    pub pages: Vec<(u32, u64)>,
    /// When the file was written last.
    pub written: Option<SystemTime>,
}

impl Wal {
    /// Reads the WAL at `path`; `None` when there is no such file.
    pub fn read(path: &Path) -> io::Result<Option<Wal>> {
        match side::open(path, false) {
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
            Ok(file) => {
                let meta = file.metadata()?;
                let mut wal = Wal::scan(BufReader::with_capacity(1 << 20, file))?;
                wal.bytes = meta.len();
                wal.written = meta.modified().ok();
                Ok(Some(wal))
            }
        }
    }

    fn scan(mut file: impl Read) -> io::Result<Wal> {
        let mut wal = Wal::default();
        let mut header = [0; HEADER_BYTES];
        if !filled(&mut file, &mut header)? {
            return Ok(wal);
        }
        let magic = be32(&header, 0);
        let page_bytes = be32(&header, 8) as usize;
        if magic & !1 != MAGIC
            || !page_bytes.is_power_of_two()
            || !(512..=65_536).contains(&page_bytes)
        {
            return Ok(wal);
        }
        let sum = Checksum { big_endian: magic & 1 == 1 };
        let mut running = sum.over((0, 0), &header[..24]);
        if running != (be32(&header, 24), be32(&header, 28)) {
            return Ok(wal);
        }
        wal.page_bytes = be32(&header, 8);
        let mut frame = vec![0; FRAME_HEADER_BYTES + page_bytes];
        let (mut frames, mut page_1) = (0, None::<Vec<u8>>);
        while filled(&mut file, &mut frame)? {
            let (head, page) = frame.split_at(FRAME_HEADER_BYTES);
            running = sum.over(sum.over(running, &head[..8]), page);
            if head[8..16] != header[16..24] || running != (be32(head, 16), be32(head, 20)) {
                break;
            }
            frames += 1;
            let number = be32(head, 0);
            wal.pages.push((number, print_of(number, page)));
            if number == 1 {
                page_1 = Some(page.to_vec());
            }
            if be32(head, 4) != 0 {
                wal.frames = frames;
                wal.commit(be32(head, 4), page_1.take());
            }
        }
        wal.pages.truncate(wal.frames as usize);
        Ok(wal)
    }

    /// Counts one, which left the database with so many pages and changed page 1 to this.
    fn commit(&mut self, size_pages: u32, page_1: Option<Vec<u8>>) {
        self.commits += 1;
        self.size_pages = size_pages;
        if let Some(page) = page_1 {
            self.first_pages.extend(FirstPage::parse(&page));
            self.heads.extend(head_of(&page));
            self.page_1 = Some(page);
        }
        if self.page_1.is_none() {
            let (least, most) = self.sizes_before.unwrap_or((size_pages, size_pages));
            self.sizes_before = Some((least.min(size_pages), most.max(size_pages)));
        }
    }
}

struct Checksum {
    big_endian: bool,
}

impl Checksum {
    fn over(&self, start: (u32, u32), bytes: &[u8]) -> (u32, u32) {
        let word = |b: &[u8]| {
            let b = [b[0], b[1], b[2], b[3]];
            if self.big_endian { u32::from_be_bytes(b) } else { u32::from_le_bytes(b) }
        };
        bytes.chunks_exact(8).fold(start, |(a, b), pair| {
            let a = a.wrapping_add(word(&pair[..4])).wrapping_add(b);
            (a, b.wrapping_add(word(&pair[4..])).wrapping_add(a))
        })
    }
}

/// What tells one content of a page from another; without the versions in page 1, which are changed in the file by themselves.
pub fn print_of(page: u32, content: &[u8]) -> u64 {
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let words = content.chunks_exact(8).zip(0..);
    words.fold(0xcbf2_9ce4_8422_2325, |print: u64, (word, at)| {
        let mut word = [word[0], word[1], word[2], word[3], word[4], word[5], word[6], word[7]];
        if page == 1 && at == 2 {
            (word[2], word[3]) = (0, 0);
        }
        (print.rotate_left(23) ^ u64::from_le_bytes(word)).wrapping_mul(PRIME)
    })
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Fills the buffer; false at the end of the file.
fn filled(file: &mut impl Read, buffer: &mut [u8]) -> io::Result<bool> {
    match file.read_exact(buffer) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == ErrorKind::UnexpectedEof => Ok(false),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::{Library, OpenFlags};

    /// A database with three commits in its WAL; the third one changes page 1.
    fn written() -> (tempfile::TempDir, Vec<u8>) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.db");
        let db = Library::linked().open_with(&path, OpenFlags::ReadWriteCreate).unwrap();
        for sql in [
            "PRAGMA journal_mode=wal",
            "CREATE TABLE t(x)",
            "INSERT INTO t VALUES(1)",
            "PRAGMA user_version=77",
        ] {
            db.execute(sql).unwrap();
        }
        let wal = std::fs::read(dir.path().join("a.db-wal")).unwrap();
        (dir, wal)
    }

    fn user_version(wal: &Wal) -> u32 {
        wal.page_1.as_ref().map_or(0, |page| be32(page, 60))
    }

    #[test]
    fn committed_frames_are_counted_and_the_newest_page_1_is_found() {
        let (_dir, bytes) = written();
        let wal = Wal::scan(&bytes[..]).unwrap();
        assert_eq!(wal.commits, 3);
        assert_eq!(wal.frames, (bytes.len() - HEADER_BYTES) as u64 / (24 + 4096));
        assert_eq!(user_version(&wal), 77);
    }

    #[test]
    fn a_torn_or_damaged_frame_ends_the_wal() {
        let (_dir, mut bytes) = written();
        let torn = Wal::scan(&bytes[..bytes.len() - 1]).unwrap();
        assert_eq!((torn.commits, user_version(&torn)), (2, 0));
        let last = bytes.len() - 100;
        bytes[last] ^= 1;
        assert_eq!(Wal::scan(&bytes[..]).unwrap().commits, 2);
    }

    #[test]
    fn what_is_no_wal_holds_nothing() {
        assert_eq!(Wal::scan(&b""[..]).unwrap(), Wal::default());
        assert_eq!(Wal::scan(&[7; 9000][..]).unwrap(), Wal::default());
        assert_eq!(Wal::read(Path::new("/no/such/file")).unwrap(), None);
    }
}
