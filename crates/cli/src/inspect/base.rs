//! The first bytes of the database file, as they are on disk or in the WAL.

use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use plait_engine::belongs::FirstPage;

use super::pairing::head_of;
use crate::os;

/// Bytes of SQLite's database header.
pub const HEADER_BYTES: usize = 100;

/// What the header says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Size of a page.
    pub page_bytes: u32,
    /// Byte 18: which programs may write.
    pub write_version: u8,
    /// Byte 19: which programs may read.
    pub read_version: u8,
    /// Pages of the file as the header has it.
    pub pages: u32,
    /// Bytes 72..75: not 0 in concurrent mode, and equal to the log's.
    pub salt: u32,
    /// Bytes 76..79: everything through this generation is in the file.
    pub generation: u32,
}

impl Header {
    /// What SQLite takes a file without a single page for.
    pub const EMPTY: Header = Header {
        page_bytes: 0,
        write_version: 1,
        read_version: 1,
        pages: 0,
        salt: 0,
        generation: 0,
    };

    /// Reads it from the start of page 1; `None` when that is no database.
    pub fn parse(page: &[u8]) -> Option<Header> {
        if page.len() < HEADER_BYTES || !page.starts_with(b"SQLite format 3\0") {
            return None;
        }
        let be32 =
            |at: usize| u32::from_be_bytes([page[at], page[at + 1], page[at + 2], page[at + 3]]);
        let page_bytes = match u32::from(page[16]) << 8 | u32::from(page[17]) {
            1 => 65_536,
            n => n,
        };
        Some(Header {
            page_bytes,
            write_version: page[18],
            read_version: page[19],
            pages: be32(28),
            salt: be32(72),
            generation: be32(76),
        })
    }

    /// Stock SQLite refuses the file.
    pub fn is_fenced(self) -> bool {
        self.write_version == 3 && self.read_version == 3
    }

    /// A replica at rest: SQLite without Plait reads the file, and does not write it.
    pub fn is_resting_replica(self) -> bool {
        self.write_version == 3 && self.read_version == 2 && self.is_concurrent()
    }

    /// The file is in concurrent mode.
    pub fn is_concurrent(self) -> bool {
        self.read_version >= 2 && self.salt != 0
    }

    /// The journal mode in the words of `PRAGMA journal_mode`.
    pub fn mode(self) -> &'static str {
        match self.read_version {
            _ if self.is_concurrent() => "concurrent",
            1 => "delete",
            2 => "wal",
            3 => "fenced, but not marked as concurrent",
            _ => "unknown to this version",
        }
    }
}

/// The database file itself.
#[derive(Clone, Copy, Debug)]
pub struct BaseFile {
    /// Its size.
    pub bytes: u64,
    /// Device and inode.
    pub identity: (u64, u64),
    /// What it begins with; `None` for anything but a database.
    pub header: Option<Header>,
    /// The same, as far as it tells whether the file goes with its WAL.
    pub first_page: Option<FirstPage>,
    /// The bytes themselves, of a database.
    pub head: Option<[u8; HEADER_BYTES]>,
}

impl BaseFile {
    /// Reads the start of the file at `path`.
    pub fn read(path: &Path) -> io::Result<BaseFile> {
        use std::os::unix::fs::MetadataExt;
        let file = os::open_regular(path)?;
        let meta = file.metadata()?;
        let mut page = [0; HEADER_BYTES];
        let is_whole = match file.read_exact_at(&mut page, 0) {
            Ok(()) => true,
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => false,
            Err(e) => return Err(e),
        };
        Ok(BaseFile {
            bytes: meta.len(),
            identity: (meta.dev(), meta.ino()),
            header: is_whole.then(|| Header::parse(&page)).flatten(),
            first_page: is_whole.then(|| FirstPage::parse(&page)).flatten(),
            head: is_whole.then(|| head_of(&page)).flatten(),
        })
    }

    /// A file without a single page: an empty database to SQLite.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(write: u8, read: u8, salt: u32) -> Vec<u8> {
        let mut page = b"SQLite format 3\0".to_vec();
        page.resize(4096, 0);
        page[16..18].copy_from_slice(&[0x10, 0]);
        (page[18], page[19]) = (write, read);
        page[72..76].copy_from_slice(&salt.to_be_bytes());
        page[76..80].copy_from_slice(&7u32.to_be_bytes());
        page
    }

    #[test]
    fn the_mode_is_read_from_the_version_bytes_and_the_salt() {
        let mode = |write, read, salt| Header::parse(&page(write, read, salt)).unwrap().mode();
        assert_eq!(mode(1, 1, 0), "delete");
        assert_eq!(mode(2, 2, 0), "wal");
        assert_eq!(mode(2, 2, 5), "concurrent");
        assert_eq!(mode(3, 3, 5), "concurrent");
        assert_eq!(mode(1, 1, 5), "delete");
        assert!(mode(3, 3, 0).contains("not marked"));
    }

    #[test]
    fn salt_and_generation_are_read_big_endian() {
        let header = Header::parse(&page(3, 3, 0x1234_5678)).unwrap();
        assert_eq!((header.salt, header.generation), (0x1234_5678, 7));
        assert!(header.is_fenced());
        assert_eq!(header.page_bytes, 4096);
    }

    #[test]
    fn other_files_have_no_header() {
        assert_eq!(Header::parse(b"SQLite format 3\0"), None);
        assert_eq!(Header::parse(&[0; 4096]), None);
    }
}
