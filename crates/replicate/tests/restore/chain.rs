//! A chain that a test writes into a folder, record by record, as a sidecar would.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use plait_replicate::chain::Flow;
use plait_replicate::ids::{
    ChainId, CommitTs, Epoch, Generation, Hash, Instance, Nonce, Position, RecordNumber,
};
use plait_replicate::names::{self, Upload};
use plait_replicate::record::item::push_page;
use plait_replicate::record::{Follows, Header, Item, Open, Part, Parts, Record, SnapshotRef};

const CHAIN: ChainId = ChainId([7; 16]);
const NONCE: Nonce = Nonce([8; 16]);
/// When the first record was written: 2026-11-28 12:00:00.457 UTC. A record comes each second, and
/// none on a whole one.
pub const BEGUN_MS: u64 = 1_795_867_200_457;
/// Pages of a part.
const PART_PAGES: usize = 16;

/// The chain.
pub struct Chain {
    folder: PathBuf,
    library: String,
    segment_bytes: u32,
    flow: Flow,
    header: Header,
    hash: Hash,
    uploads: u32,
}

impl Chain {
    /// Begins a chain in a folder, with an OPEN that follows nothing.
    pub fn begin(folder: &Path, position: Position, segment_bytes: u32, library: &str) -> Chain {
        let mut chain = Chain {
            folder: folder.to_owned(),
            library: library.to_owned(),
            segment_bytes,
            flow: Flow::new(position, segment_bytes),
            header: Header { chain: CHAIN, nonce: NONCE, segment_bytes, ..Header::default() },
            hash: Hash::ZERO,
            uploads: 0,
        };
        chain.open(Follows::Nothing, position);
        chain
    }

    fn open(&mut self, follows: Follows, position: Position) {
        let number = self.header.number.next();
        self.header.epoch = Epoch(self.header.epoch.0 + 1);
        self.header.opened = number;
        if follows == Follows::Nothing {
            self.header.broken = number;
        }
        self.flow = Flow::new(position, self.segment_bytes);
        let open = Open {
            follows,
            page_bytes: 4096,
            instance: Instance([9; 16]),
            library: self.library.clone(),
            host: "a test".to_owned(),
        };
        self.append(vec![Item::Open(open)]);
    }

    /// A new session over the same base.
    pub fn renew(&mut self, position: Position) {
        self.open(Follows::Base, position);
    }

    /// Appends a record, and returns its number.
    pub fn append(&mut self, items: Vec<Item>) -> RecordNumber {
        let number = self.header.number.next();
        for item in &items {
            self.flow.take(number, item).expect("the primary gives what follows");
        }
        self.append_anyhow(items)
    }

    /// Appends a record whose items may not follow what is before them.
    pub fn append_anyhow(&mut self, items: Vec<Item>) -> RecordNumber {
        let number = self.header.number.next();
        if items.iter().any(|item| matches!(item, Item::Snapshot(_))) {
            self.header.snapshot = number;
        }
        self.header.number = number;
        self.header.previous = self.hash;
        self.header.written_ms = BEGUN_MS + number.0 * 1000;
        self.header.position = self.flow.position;
        self.header.first = number.next();
        let bytes = Record { header: self.header.clone(), items }.encode();
        self.hash = Hash::of(&bytes);
        self.write(&names::record(number), &bytes);
        number
    }

    /// Where base and stream are.
    pub fn position(&self) -> Position {
        self.flow.position
    }

    /// The last record.
    pub fn number(&self) -> RecordNumber {
        self.header.number
    }

    /// Uploads all pages of the base, or those that are not among the parent's, and names them.
    pub fn snapshot(
        &mut self,
        file: &[u8],
        page_bytes: u32,
        parent: Option<(RecordNumber, &[u8])>,
    ) {
        let page_count = (file.len() / page_bytes as usize) as u32;
        self.snapshot_said_to_have(page_count, file, page_bytes, parent);
    }

    /// The same, whose record says another count of pages.
    pub fn snapshot_said_to_have(
        &mut self,
        page_count: u32,
        file: &[u8],
        page_bytes: u32,
        parent: Option<(RecordNumber, &[u8])>,
    ) {
        let as_of = self.header.number;
        let position = self.flow.position;
        self.uploads += 1;
        let upload = Upload { begun: as_of.next(), nonce: NONCE, serial: self.uploads };
        let pages = file.chunks(page_bytes as usize).enumerate().filter(|(at, page)| {
            let from = at * page_bytes as usize;
            let before = parent.and_then(|(_, before)| before.get(from..from + page.len()));
            before != Some(page)
        });
        let pages: Vec<(usize, &[u8])> = pages.collect();
        let mut each = Vec::new();
        for some in pages.chunks(PART_PAGES) {
            let mut raw = Vec::new();
            some.iter().for_each(|(at, page)| push_page(&mut raw, *at as u32 + 1, page));
            let stored = zstd::bulk::compress(&raw, 3).expect("it is compressed");
            self.write(&names::part(upload, each.len() as u32), &stored);
            each.push(Part {
                stored_bytes: stored.len() as u32,
                raw_bytes: raw.len() as u32,
                hash: Hash::of(&stored),
            });
        }
        let stream = position.stream.0.next_multiple_of(u64::from(self.segment_bytes));
        let earlier = self.header.snapshot;
        let snapshot = SnapshotRef {
            generation: position.base,
            salt: position.salt,
            page_bytes,
            page_count,
            as_of,
            first: as_of,
            stream: plait_replicate::ids::Lsn(stream),
            parent: parent.map_or(RecordNumber::NONE, |(number, _)| number),
            earlier,
            taken_ms: self.header.written_ms,
            parts: Parts { upload, each },
        };
        self.append(vec![Item::Snapshot(snapshot)]);
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.folder.join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("it is made");
        std::fs::write(path, bytes).expect("it is written");
    }
}

/// Frames as an item.
pub fn frames(generation: u32, from: u64, commits: (u64, u64), bytes: Vec<u8>) -> Item {
    Item::Frames(plait_replicate::record::Frames {
        generation: Generation(generation),
        from: plait_replicate::ids::Lsn(from),
        first_commit: CommitTs(commits.0),
        last_commit: CommitTs(commits.1),
        bytes: Bytes::from(bytes),
    })
}
