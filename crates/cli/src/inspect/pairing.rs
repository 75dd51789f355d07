//! Whether a database file and the WAL beside it belong together, where nothing else tells: no log, no session, no mark.
//!
//! SQLite applies any WAL whose checksums are right, to whatever file stands beside it. So a backup that is copied over a database whose
//! WAL stayed there is mixed with that WAL, page by page. The engine refuses what the marks of concurrent mode give away
//! (`plait_engine::belongs`). This goes on from there, by what SQLite itself puts into page 1 and into each commit of a WAL:
//!
//! | rule | holds because | broken |
//! |---|---|---|
//! | the file begins as a database | nothing but a checkpoint writes to it, page 1 first | foreign |
//! | file and WAL have one size of page | it does not change in WAL mode | foreign |
//! | header of the file, but for its versions: one of those in the WAL, or its counter of changes is at most one behind the first of them | a connection that commits page 1 counts on from the page 1 that it has read | foreign |
//! | the latter, and there are commits before the first page 1 in the WAL: they say as many pages as the file has | page 1 has the number of pages, so who changes that writes page 1 | foreign |
//! | likewise, and without auto-vacuum: the first page 1 in the WAL has no fewer pages than the file, or the WAL has all of them | VACUUM alone makes a database shorter, and writes every page | foreign |
//! | every page of the last commit is in the file or in the WAL | a WAL starts over when all of it is in the file | foreign |
//! | versions of 1 beside a WAL with commits: there are none, but in a moment of leaving WAL mode (`belongs.rs` there) | the mode comes first | suspect |
//! | a file that was written after its WAL has something of it | a checkpoint has written it | suspect |
//!
//! A header fits into one sector, so power cuts do not tear it. Deliberately absent: a file that breaks none of these rules, as an older state with
//! the same header does. Nothing can tell.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::SystemTime;

use super::base::{BaseFile, HEADER_BYTES, Header};
use super::wal::{Wal, print_of};
use crate::os;
use crate::quantity::of;

/// Pages that are compared, lowest first, as a checkpoint writes them.
const COMPARED_MAX: usize = 10_000;

/// What can be said of a file and its WAL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Pairing {
    /// Nothing speaks against it.
    #[default]
    Fits,
    /// Something does that other causes may have, in words.
    Suspect(String),
    /// They do not belong together, and why.
    Foreign(String),
}

/// Looks at the database file at `path`, as it was read into `base`, beside its `wal`.
pub fn pairing(path: &Path, base: &BaseFile, wal: &Wal) -> io::Result<Pairing> {
    if base.is_empty() || wal.frames == 0 {
        return Ok(Pairing::Fits);
    }
    if let Some(why) = contradiction(base, wal) {
        return Ok(Pairing::Foreign(why));
    }
    let is_rollback = base.header.is_some_and(|header| header.read_version < 2);
    if is_rollback {
        return Ok(Pairing::Suspect(
            "the file says that it is in a rollback mode, in which there is no WAL".to_owned(),
        ));
    }
    if Some(written(path)?) > wal.written && !has_something_of(path, wal)? {
        return Ok(Pairing::Suspect(
            "the file was written after the WAL, and nothing of the WAL is in it, as if another file had been copied over the one \
             that the WAL belongs to"
                .to_owned(),
        ));
    }
    Ok(Pairing::Fits)
}

/// What cannot be, in words.
fn contradiction(base: &BaseFile, wal: &Wal) -> Option<String> {
    let (Some(header), Some(head)) = (base.header, base.head) else {
        return Some("the file does not begin as a database does".to_owned());
    };
    if header.page_bytes != wal.page_bytes {
        return Some(format!(
            "the pages of the file have {} bytes, and those of the WAL {}",
            header.page_bytes, wal.page_bytes
        ));
    }
    let in_file = base.bytes.div_ceil(u64::from(header.page_bytes).max(1));
    let is_brought = wal.heads.iter().any(|other| is_same(&head, other));
    if !is_brought {
        let first = wal.heads.first();
        if let Some(counted) = first.map(|first| changes(first).wrapping_sub(changes(&head)))
            && counted > 1
        {
            return Some(format!(
                "by the counter of changes in its header ({}) the file is not what the WAL was begun over",
                changes(&head)
            ));
        }
        // Of a program that does not keep the number of pages the header says so.
        let is_counted = changes(&head) == be32(&head, 92);
        let other = is_counted.then(|| other_size(&head, in_file, wal)).flatten();
        if let Some(other) = other {
            return Some(format!(
                "the file has {}, and the WAL was begun over one of {other}",
                of(u64::from(header.pages), "page", "pages")
            ));
        }
    }
    missing(in_file, wal)
}

/// Pages of the file that the WAL was begun over, in words, where those of this one are others.
fn other_size(head: &[u8; HEADER_BYTES], in_file: u64, wal: &Wal) -> Option<String> {
    let pages = be32(head, 28);
    let is_of = |size: u32| size == pages || u64::from(size) == in_file;
    if let Some((least, most)) = wal.sizes_before
        && !(is_of(least) && is_of(most))
    {
        return Some(if is_of(least) { most } else { least }.to_string());
    }
    let first = be32(wal.heads.first()?, 28);
    let has_auto_vacuum = be32(head, 52) != 0;
    let mut all: Vec<u32> = wal.pages.iter().map(|&(page, _)| page).collect();
    all.sort_unstable();
    all.dedup();
    let is_vacuum =
        (1..=first).zip(&all).all(|(n, page)| n == *page) && all.len() >= first as usize;
    (first < pages && !has_auto_vacuum && !is_vacuum).then(|| format!("{first} or fewer"))
}

/// Pages that neither has.
fn missing(in_file: u64, wal: &Wal) -> Option<String> {
    let wanted = u64::from(wal.size_pages).checked_sub(in_file).filter(|&n| n > 0)?;
    let mut beyond: Vec<u32> = wal.pages.iter().map(|&(page, _)| page).collect();
    beyond.retain(|&page| u64::from(page) > in_file && page <= wal.size_pages);
    beyond.sort_unstable();
    beyond.dedup();
    let missing = wanted - beyond.len() as u64;
    (missing > 0).then(|| {
        format!(
            "the WAL is of a file of {}, and {missing} of them are neither in the file nor in the WAL",
            of(u64::from(wal.size_pages), "page", "pages")
        )
    })
}

fn written(path: &Path) -> io::Result<SystemTime> {
    std::fs::metadata(path)?.modified()
}

/// One of the pages in the WAL stands in the file as some commit in the WAL has left it.
fn has_something_of(path: &Path, wal: &Wal) -> io::Result<bool> {
    let file: File = os::open_regular(path)?;
    let mut pages = wal.pages.clone();
    pages.sort_unstable();
    let mut content = vec![0; wal.page_bytes as usize];
    for same in pages.chunk_by(|a, b| a.0 == b.0).take(COMPARED_MAX) {
        let page = same[0].0;
        let at = u64::from(page.saturating_sub(1)) * u64::from(wal.page_bytes);
        match file.read_exact_at(&mut content, at) {
            Err(e) if e.kind() == ErrorKind::UnexpectedEof => return Ok(false),
            other => other?,
        }
        let print = print_of(page, &content);
        if same.iter().any(|&(_, other)| other == print) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The versions in the file may be ahead: the fence is raised there by itself.
fn is_same(file: &[u8; HEADER_BYTES], in_wal: &[u8; HEADER_BYTES]) -> bool {
    file[..18] == in_wal[..18] && file[20..] == in_wal[20..]
}

fn changes(head: &[u8; HEADER_BYTES]) -> u32 {
    be32(head, 24)
}

fn be32(head: &[u8; HEADER_BYTES], at: usize) -> u32 {
    u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]])
}

/// The beginning of a page 1.
pub fn head_of(page: &[u8]) -> Option<[u8; HEADER_BYTES]> {
    Header::parse(page)?;
    page.first_chunk().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(changes: u32, pages: u32) -> [u8; HEADER_BYTES] {
        let mut head = [0; HEADER_BYTES];
        head[..16].copy_from_slice(b"SQLite format 3\0");
        head[16..20].copy_from_slice(&[0x10, 0, 2, 2]);
        for (at, value) in [(24, changes), (28, pages), (92, changes)] {
            head[at..at + 4].copy_from_slice(&value.to_be_bytes());
        }
        head
    }

    fn file(changes: u32, pages: u32) -> BaseFile {
        let head = head(changes, pages);
        BaseFile {
            bytes: u64::from(pages) * 4096,
            identity: (0, 0),
            header: Header::parse(&head),
            first_page: None,
            head: Some(head),
        }
    }

    /// Commits by their sizes and, where they have page 1, its counter.
    fn wal(commits: &[(u32, Option<u32>)], pages: &[u32]) -> Wal {
        let before = commits.iter().take_while(|(_, changes)| changes.is_none());
        let sizes: Vec<u32> = before.map(|(size, _)| *size).collect();
        Wal {
            frames: 1,
            page_bytes: 4096,
            size_pages: commits.last().map_or(0, |(size, _)| *size),
            sizes_before: sizes.iter().min().copied().zip(sizes.iter().max().copied()),
            heads: commits.iter().filter_map(|(size, c)| c.map(|c| head(c, *size))).collect(),
            pages: pages.iter().map(|&page| (page, 0)).collect(),
            ..Wal::default()
        }
    }

    fn fits(file: &BaseFile, wal: &Wal) -> bool {
        contradiction(file, wal).is_none()
    }

    #[test]
    fn the_counter_goes_on_from_the_file_or_the_file_has_a_page_of_the_wal() {
        let in_wal = wal(&[(7, Some(10)), (7, Some(11))], &[1]);
        for (changes, is_its) in [(8, false), (9, true), (10, true), (11, true), (12, false)] {
            assert_eq!(fits(&file(changes, 7), &in_wal), is_its, "{changes}");
        }
        // The counter of a page in the WAL, with another content.
        assert!(!fits(&file(11, 6), &in_wal));
    }

    #[test]
    fn commits_before_the_first_page_1_are_made_over_as_many_pages_as_the_file_has() {
        assert!(fits(&file(9, 7), &wal(&[(7, None), (7, None)], &[3])));
        assert!(!fits(&file(9, 7), &wal(&[(5, None)], &[3])));
        assert!(!fits(&file(9, 7), &wal(&[(5, None), (8, Some(10))], &[1, 3, 8])));
        assert!(fits(&file(10, 8), &wal(&[(5, None), (8, Some(10))], &[1, 3, 8])), "brought");
        // Longer than its header says, as a file with room to grow is.
        let padded = BaseFile { bytes: 12 * 4096, ..file(9, 7) };
        assert!(fits(&padded, &wal(&[(12, None)], &[3])));
    }

    #[test]
    fn a_database_becomes_shorter_by_a_vacuum_alone() {
        let all = [1, 2, 3];
        assert!(fits(&file(9, 7), &wal(&[(3, Some(10))], &all)));
        assert!(!fits(&file(9, 7), &wal(&[(3, Some(10))], &all[..2])));
        let mut shrinks = file(9, 7);
        shrinks.head = shrinks.head.map(|mut head| {
            head[55] = 3;
            head
        });
        assert!(fits(&shrinks, &wal(&[(3, Some(10))], &all[..2])));
    }

    #[test]
    fn no_page_may_be_missing() {
        assert!(fits(&file(9, 7), &wal(&[(9, Some(10))], &[1, 8, 9, 8])));
        assert!(!fits(&file(9, 7), &wal(&[(9, Some(10))], &[1, 8])));
    }

    #[test]
    fn another_size_of_pages_and_another_kind_of_file_are_foreign() {
        let other = Wal { page_bytes: 1024, ..wal(&[(7, None)], &[3]) };
        assert!(!fits(&file(9, 7), &other));
        let notes = BaseFile { header: None, head: None, ..file(9, 7) };
        assert!(!fits(&notes, &wal(&[(7, Some(10))], &[1])));
    }
}
