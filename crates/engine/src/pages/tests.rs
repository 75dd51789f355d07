//! Files of pages: the effect of a cut, a flipped byte or another base.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::*;
use crate::base::{BaseHeader, Checkpoint, WalState};
use crate::ids::Root;
use crate::shm::read_marks::ReadMarks;

const SALT: u32 = 5;
const PAGE: usize = 512;
const COUNTER: u32 = 77;

fn place() -> Place {
    Place { salt: SALT, generation: Generation::new(9), before: Generation::new(8) }
}

fn changed() -> Changed {
    Changed { change_counter: COUNTER, page_bytes: PAGE as u32, page_count: 6, count: 3 }
}

/// A base of pages.
struct Paged {
    header: BaseHeader,
    counter: u32,
    pages: BTreeMap<u32, Vec<u8>>,
    count: u32,
}

impl Paged {
    fn new() -> Paged {
        let header = BaseHeader {
            marked: true,
            fenced: true,
            salt: SALT,
            generation: place().before,
            ..BaseHeader::default()
        };
        Paged { header, counter: COUNTER, pages: BTreeMap::new(), count: 8 }
    }
}

impl Base for Paged {
    fn use_read_marks(&mut self, _: &Arc<ReadMarks>) {}
    fn header(&mut self) -> Result<BaseHeader> {
        Ok(self.header)
    }
    fn begin(&mut self) -> Result<()> {
        Ok(())
    }
    fn put(&mut self, _: Root, _: &[u8], _: &[u8]) -> Result<()> {
        unreachable!("rows")
    }
    fn delete(&mut self, _: Root, _: &[u8], _: &[u8]) -> Result<()> {
        unreachable!("rows")
    }
    fn replace_pages(&mut self, page_bytes: u32, change_counter: u32) -> Result<()> {
        let fits = page_bytes as usize == PAGE && change_counter == self.counter;
        if fits { Ok(()) } else { Err(Error::Replaced("here".into())) }
    }
    fn put_page(&mut self, number: u32, content: &[u8]) -> Result<()> {
        self.pages.insert(number, content.to_vec());
        Ok(())
    }
    fn set_page_count(&mut self, count: u32) -> Result<()> {
        self.count = count;
        Ok(())
    }
    fn stamp(&mut self, _: &BaseHeader) -> Result<()> {
        Ok(())
    }
    fn commit(&mut self) -> Result<()> {
        Ok(())
    }
    fn rollback(&mut self) {}
    fn raise_fence(&mut self) -> Result<()> {
        Ok(())
    }
    fn checkpoint(&mut self, _: Checkpoint) -> Result<WalState> {
        Ok(WalState::default())
    }
}

fn folder() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a folder");
    let base = dir.path().join("a.db");
    std::fs::write(&base, b"a").expect("a database");
    (dir, base)
}

fn write_numbers(base: &Path, numbers: [u32; 3]) -> PagesId {
    write(base, &place(), &changed(), &mut |put| {
        numbers.iter().try_for_each(|&number| put(number, &[number as u8; PAGE]))
    })
    .expect("written")
}

fn reopen(base: &Path, id: &PagesId) -> Result<Pages> {
    open(base, id, SALT, place().generation)
}

// holds PAGES-2
#[test]
fn pages_go_into_the_base_that_they_were_made_of_and_into_no_other() {
    let (_dir, path) = folder();
    let id = write_numbers(&path, [1, 4, 6]);
    let pages = reopen(&path, &id).expect("whole");
    for _ in 0..2 {
        let mut base = Paged::new();
        pages.put(&path, &mut base).expect("it fits");
        assert_eq!(base.pages.keys().copied().collect::<Vec<_>>(), [1, 4, 6]);
        assert!(base.pages.iter().all(|(number, page)| page == &[*number as u8; PAGE]));
        assert_eq!(base.count, 6, "it became shorter");
    }
    let others: [fn(&mut Paged); 4] = [
        |base| base.header.salt += 1,
        |base| base.header.fenced = false,
        |base| base.header.generation = Generation::new(7),
        |base| base.counter += 1,
    ];
    for change in others {
        let mut base = Paged::new();
        change(&mut base);
        assert!(matches!(pages.put(&path, &mut base), Err(Error::Replaced(_))));
        assert!(base.pages.is_empty());
    }
    forget(&path);
    let error = reopen(&path, &id).err().expect("gone").to_string();
    assert!(error.contains("is missing") && error.contains("--accept-base"), "{error}");
    forget(&path);
}

// holds PAGES-2
#[test]
fn pages_of_another_transaction_session_or_generation_are_refused() {
    let (_dir, path) = folder();
    let old = write_numbers(&path, [1, 4, 6]);
    let id = write_numbers(&path, [1, 4, 6]);
    assert_ne!(old, id, "the same content, and another file");
    let attempts = [
        reopen(&path, &old),
        open(&path, &id, SALT + 1, place().generation),
        open(&path, &id, SALT, Generation::new(10)),
    ];
    for attempt in attempts {
        let error = attempt.err().expect("refused");
        assert!(matches!(error, Error::CantOpen(_)), "{error}");
        assert!(error.to_string().contains("another transaction"), "{error}");
    }
}

#[test]
fn a_file_that_is_cut_short_or_changed_at_any_byte_is_refused() {
    let (_dir, path) = folder();
    let id = write_numbers(&path, [1, 4, 6]);
    let file = pages_path(&path);
    let whole = std::fs::read(&file).expect("its bytes");
    for len in 0..whole.len() {
        std::fs::write(&file, &whole[..len]).expect("cut");
        assert!(matches!(reopen(&path, &id), Err(Error::Corrupt(_))), "{len} bytes");
    }
    // Bytes 52..60 are spare, and under the checksum too.
    for at in 0..whole.len() {
        let mut bad = whole.clone();
        bad[at] ^= 1 << (at % 8);
        std::fs::write(&file, &bad).expect("flipped");
        assert!(reopen(&path, &id).is_err(), "byte {at}");
    }
    std::fs::write(&file, &whole).expect("as it was");
    reopen(&path, &id).expect("whole again");
}

#[test]
fn pages_that_cannot_be_are_refused_under_a_right_checksum() {
    let (_dir, path) = folder();
    for numbers in [[0, 1, 2], [1, 1, 2], [2, 1, 3], [1, 2, 7], [1, 2, u32::MAX]] {
        let id = write_numbers(&path, numbers);
        let error = reopen(&path, &id).err().expect("refused");
        assert!(matches!(error, Error::Corrupt(_)), "{numbers:?}: {error}");
    }
    let heads: [fn(&mut Changed); 4] =
        [|c| c.page_bytes = 513, |c| c.page_bytes = 1 << 17, |c| c.count = 0, |c| c.page_count = 2];
    for change in heads {
        let mut changed = changed();
        change(&mut changed);
        let header = Header { nonce: 1, place: place(), changed, sum: 0 }.encode();
        assert!(Header::decode(&header).is_err(), "{changed:?}");
    }
}

#[test]
fn a_link_in_its_place_is_refused_and_what_it_leads_to_stays() {
    let (dir, path) = folder();
    let precious = dir.path().join("precious");
    std::fs::write(&precious, b"precious").expect("a file");
    std::os::unix::fs::symlink(&precious, pages_path(&path)).expect("a link");
    let error = write(&path, &place(), &changed(), &mut |_| Ok(())).expect_err("refused");
    assert!(error.to_string().contains("symbolic link"), "{error}");
    forget(&path);
    assert_eq!(std::fs::read(&precious).expect("there"), b"precious");
}
