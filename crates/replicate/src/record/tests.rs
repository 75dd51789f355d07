//! Records written, read back, damaged, cut, and made up by strangers.

use proptest::prelude::*;

use super::*;
use crate::ids::Instance;
use crate::names::Upload;

fn part() -> impl Strategy<Value = Part> {
    (any::<u32>(), 0u32..9, any::<[u8; 32]>()).prop_map(|(stored_bytes, pages, hash)| Part {
        stored_bytes,
        raw_bytes: pages * (1024 + 4),
        hash: Hash(hash),
    })
}

fn parts() -> impl Strategy<Value = Parts> {
    let each = prop::collection::vec(part(), 0..5);
    (any::<u64>(), any::<[u8; 16]>(), any::<u32>(), each).prop_map(
        |(begun, nonce, serial, each)| {
            let (begun, nonce) = (RecordNumber(begun), Nonce(nonce));
            Parts { upload: Upload { begun, nonce, serial }, each }
        },
    )
}

fn body() -> impl Strategy<Value = Body> {
    let inline = prop::collection::btree_map(1u32..99, any::<u8>(), 0..4).prop_map(|pages| {
        let mut list = Vec::new();
        pages.into_iter().for_each(|(n, byte)| item::push_page(&mut list, n, &[byte; 1024]));
        Body::Inline(list.into())
    });
    prop_oneof![inline, parts().prop_map(Body::Parts)]
}

fn open() -> impl Strategy<Value = Item> {
    let follows = prop_oneof![Just(Follows::Nothing), Just(Follows::Stream), Just(Follows::Base)];
    (follows, any::<[u8; 16]>(), any::<String>(), any::<String>()).prop_map(
        |(follows, instance, library, host)| {
            let instance = Instance(instance);
            Item::Open(Open { follows, page_bytes: 4096, instance, library, host })
        },
    )
}

fn gap() -> impl Strategy<Value = Item> {
    (any::<[u64; 2]>(), any::<[u32; 2]>(), any::<String>()).prop_map(
        |([stream, commit], [base, newest], why)| {
            let (stream, commit) = (Lsn(stream), CommitTs(commit));
            let (base, incomplete) = (Generation(base), Generation(newest));
            Item::Break(Break { stream, base, incomplete, commit, why })
        },
    )
}

fn frames() -> impl Strategy<Value = Item> {
    let bytes = prop::collection::vec(0u8..4, 1..900);
    (any::<u32>(), 0u64..1 << 60, any::<u64>(), any::<u64>(), bytes).prop_map(
        |(generation, from, one, other, bytes)| {
            Item::Frames(Frames {
                generation: Generation(generation),
                from: Lsn(from),
                first_commit: CommitTs(one.min(other)),
                last_commit: CommitTs(one.max(other)),
                bytes: bytes.into(),
            })
        },
    )
}

fn change() -> impl Strategy<Value = Item> {
    let merge = (0u32..99, 1u32..9, any::<u32>(), any::<u32>()).prop_map(|(b, n, pages, sum)| {
        let (before, through) = (Generation(b), Generation(b + n));
        Item::Merge(Merge { before, through, page_count: pages, sum })
    });
    let pages = (0u32..99, 1u32..9, any::<u32>(), body()).prop_map(|(b, n, page_count, body)| {
        let (before, through) = (Generation(b), Generation(b + n));
        Item::Pages(PageSet { before, through, page_bytes: 1024, page_count, body })
    });
    let snapshot = (any::<[u32; 3]>(), 1u64..99, 0u64..9, any::<[u64; 2]>(), parts()).prop_map(
        |([generation, salt, page_count], as_of, back, [stream, taken_ms], parts)| {
            Item::Snapshot(SnapshotRef {
                generation: Generation(generation),
                salt: Salt(salt),
                page_bytes: 1024,
                page_count,
                as_of: RecordNumber(as_of),
                first: RecordNumber(as_of.saturating_sub(back)),
                stream: Lsn(stream),
                parent: RecordNumber(back),
                earlier: RecordNumber(back + 1),
                taken_ms,
                parts,
            })
        },
    );
    prop_oneof![merge, pages, snapshot]
}

fn items() -> impl Strategy<Value = Vec<Item>> {
    let later = prop::collection::vec(prop_oneof![frames(), change()], 0..5);
    let first = prop::option::of(prop_oneof![open(), gap()]);
    (first, later).prop_map(|(first, later)| first.into_iter().chain(later).collect())
}

prop_compose! {
    fn header()(
        chain: [u8; 16], nonce: [u8; 16], previous: [u8; 32], number in 1u64..1 << 60,
        words: [u64; 3], halves: [u32; 3], back in 0u64..20, shift in 9u32..31,
    ) -> Header {
        let earlier = RecordNumber(number.saturating_sub(back));
        Header {
            chain: ChainId(chain),
            number: RecordNumber(number),
            epoch: Epoch(number.saturating_sub(back).max(1)),
            nonce: Nonce(nonce),
            previous: Hash(previous),
            written_ms: words[0],
            position: Position {
                salt: Salt(halves[0]),
                base: Generation(halves[1]),
                stream: Lsn(words[1]),
                commit: CommitTs(words[2]),
                crc: halves[2],
            },
            first: if back == 0 { RecordNumber(number + 1) } else { earlier },
            snapshot: earlier,
            broken: earlier,
            opened: earlier.max(RecordNumber::FIRST),
            segment_bytes: 1 << shift,
        }
    }
}

fn record() -> impl Strategy<Value = Record> {
    (header(), items()).prop_map(|(header, items)| Record { header, items })
}

proptest! {
    #[test]
    fn a_record_reads_back_as_it_was_written(record in record()) {
        let bytes = record.encode();
        prop_assert_eq!(Record::decode(&bytes), Ok(record.clone()));
        prop_assert_eq!(header_of(&bytes[..HEADER_BYTES]), Ok(record.header.clone()));
        let most: usize = record.items.iter().map(Item::len_max).sum();
        prop_assert!(bytes.len() <= HEADER_BYTES + most);
    }

    #[test]
    fn a_record_with_a_flipped_bit_is_refused(record in record(), at: prop::sample::Index, bit in 0..8) {
        let mut bytes = record.encode().to_vec();
        let at = at.index(bytes.len());
        bytes[at] ^= 1u8 << bit;
        let expected = match at {
            0..8 => BadRecord::Foreign,
            8..HEADER_BYTES => BadRecord::Checksum("header"),
            _ => BadRecord::Checksum("body"),
        };
        prop_assert_eq!(Record::decode(&bytes.into()), Err(expected));
    }

    #[test]
    fn a_record_that_was_cut_short_or_goes_on_is_refused(record in record(), at: prop::sample::Index) {
        let bytes = record.encode();
        let found = at.index(bytes.len());
        let cut = Record::decode(&bytes.slice(..found));
        if found < 8 {
            prop_assert_eq!(cut, Err(BadRecord::Foreign));
        } else {
            let stated = if found < HEADER_BYTES { HEADER_BYTES } else { bytes.len() };
            prop_assert_eq!(cut, Err(BadRecord::Length { found, stated }));
        }
        let longer = Bytes::from([&bytes[..], b"x"].concat());
        let expected = BadRecord::Length { found: longer.len(), stated: bytes.len() };
        prop_assert_eq!(Record::decode(&longer), Err(expected));
    }

    /// Right checksums over a body of other bytes: as a stranger could make them.
    #[test]
    fn a_body_made_up_by_a_stranger_is_read_or_refused(
        record in record(), body in prop::collection::vec(0u8..7, 0..200), items in 0u32..5,
    ) {
        let mut bytes = Record { items: Vec::new(), ..record }.encode().to_vec();
        bytes[168..172].copy_from_slice(&items.to_le_bytes());
        for at in [172, 176] {
            bytes[at..at + 4].copy_from_slice(&(body.len() as u32).to_le_bytes());
        }
        bytes[180..184].copy_from_slice(&crc32c::crc32c(&body).to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..184]);
        bytes[184..188].copy_from_slice(&crc.to_le_bytes());
        bytes.extend_from_slice(&body);
        match Record::decode(&bytes.clone().into()) {
            Ok(read) => prop_assert_eq!(Record::decode(&read.encode()), Ok(read)),
            Err(why) => prop_assert_eq!(why, BadRecord::Malformed("body")),
        }
    }

    #[test]
    fn bytes_of_a_stranger_are_no_record(bytes: Vec<u8>) {
        prop_assert_eq!(Record::decode(&bytes.clone().into()), Err(BadRecord::Foreign));
        let named = [&MAGIC[..], &bytes].concat();
        prop_assert!(Record::decode(&named.into()).is_err());
    }
}

#[test]
fn a_record_of_a_later_version_is_told_from_a_damaged_one() {
    let header = Header {
        number: RecordNumber(1),
        epoch: Epoch(1),
        first: RecordNumber(2),
        opened: RecordNumber(1),
        segment_bytes: 4096,
        ..Header::default()
    };
    let mut bytes = Record { header, items: Vec::new() }.encode().to_vec();
    bytes[8] = 2;
    assert_eq!(Record::decode(&bytes.clone().into()), Err(BadRecord::Checksum("header")));
    let crc = crc32c::crc32c(&bytes[..184]);
    bytes[184..188].copy_from_slice(&crc.to_le_bytes());
    let refused = Record::decode(&bytes.into()).expect_err("another version");
    assert_eq!(refused, BadRecord::Later(2));
    assert!(refused.to_string().contains("a later version of Plait"), "{refused}");
}
