//! Every engine that is here does key-value work as its trait promises.

use std::sync::{Barrier, Mutex};

use plait_bench::engines::catalogue::{self, Presence};
use plait_bench::engines::{
    Begin, Failure, Key, KeyKind, KeyValue, Outcome, Settings, Store, Table,
};

/// An engine in a setting that all its tests use.
struct Setup {
    name: &'static str,
    settings: &'static [(&'static str, &'static str)],
    /// Whether two connections may have transactions at the same time in one thread without waiting for ever.
    overlapping: bool,
}

const SETUPS: &[Setup] = &[
    Setup {
        name: "stock",
        settings: &[("journal_mode", "wal"), ("synchronous", "off")],
        overlapping: true,
    },
    Setup {
        name: "plait",
        settings: &[("journal_mode", "concurrent"), ("synchronous", "off")],
        overlapping: true,
    },
    Setup {
        name: "plait-kv",
        settings: &[("journal_mode", "concurrent"), ("synchronous", "off")],
        overlapping: true,
    },
    Setup { name: "bdb", settings: &[("sync", "nosync")], overlapping: false },
    Setup { name: "lmdb", settings: &[("sync", "nosync")], overlapping: true },
    Setup { name: "redb", settings: &[("durability", "none")], overlapping: true },
    Setup { name: "fjall", settings: &[], overlapping: true },
    Setup { name: "rocksdb", settings: &[], overlapping: true },
    Setup { name: "map", settings: &[], overlapping: false },
    Setup { name: "log", settings: &[], overlapping: false },
];

fn tables() -> Vec<Table> {
    vec![
        Table { name: "intkey".to_owned(), keys: KeyKind::Int, without_rowid: false },
        Table { name: "blobkey".to_owned(), keys: KeyKind::Blob, without_rowid: false },
    ]
}

/// Runs a test on each engine that is here, each with an empty store.
fn on_each(test: impl Fn(&Setup, &dyn Store)) {
    let entries = catalogue::all(&[]).unwrap();
    for setup in SETUPS {
        let entry = entries.iter().find(|e| e.name == setup.name);
        let entry = entry.unwrap_or_else(|| panic!("{} is not in the catalogue", setup.name));
        let Some(engine) = entry.engine() else { continue };
        let engine = engine.load().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let settings: Settings = setup.settings.iter().copied().collect();
        let store = engine.open(directory.path(), &settings).unwrap();
        store.create(&tables()).unwrap();
        test(setup, store.as_ref());
        store.close().unwrap_or_else(|e| panic!("{}: {e}", setup.name));
    }
}

fn value_of(kv: &mut dyn KeyValue, table: usize, key: Key<'_>) -> Option<Vec<u8>> {
    let mut value = None;
    let found = kv.get(table, key, &mut |v| value = Some(v.to_vec())).unwrap();
    assert_eq!(found, value.is_some());
    value
}

fn scanned(kv: &mut dyn KeyValue, table: usize, from: Option<Key<'_>>, count: u64) -> Vec<Vec<u8>> {
    let mut values = Vec::new();
    let told = kv.scan(table, from, count, &mut |v| values.push(v.to_vec())).unwrap();
    assert_eq!(told, values.len() as u64);
    values
}

#[test]
fn what_was_put_is_found_until_it_is_deleted() {
    on_each(|setup, store| {
        let mut kv = store.key_value(&tables()).unwrap();
        for (table, key) in [(0, Key::Int(-7)), (1, Key::Blob(b"\0\x01k"))] {
            let name = setup.name;
            assert_eq!(value_of(kv.as_mut(), table, key), None, "{name}");
            kv.insert(table, key, b"one").unwrap();
            assert_eq!(value_of(kv.as_mut(), table, key).as_deref(), Some(&b"one"[..]), "{name}");
            kv.update(table, key, b"two\0").unwrap();
            assert_eq!(value_of(kv.as_mut(), table, key).as_deref(), Some(&b"two\0"[..]), "{name}");
            assert!(kv.delete(table, key).unwrap(), "{name}");
            assert!(!kv.delete(table, key).unwrap(), "{name}");
            assert_eq!(value_of(kv.as_mut(), table, key), None, "{name}");
        }
    });
}

#[test]
fn large_values_come_back_whole() {
    let large: Vec<u8> = (0..65_536_u32).map(|i| i.to_le_bytes()[1] ^ i.to_le_bytes()[0]).collect();
    on_each(|setup, store| {
        let mut kv = store.key_value(&tables()).unwrap();
        kv.begin(Begin::Immediate).unwrap();
        kv.insert(0, Key::Int(1), &large).unwrap();
        kv.insert(1, Key::Blob(b"k"), &large).unwrap();
        kv.commit().unwrap();
        assert!(value_of(kv.as_mut(), 0, Key::Int(1)).as_ref() == Some(&large), "{}", setup.name);
        assert!(scanned(kv.as_mut(), 1, None, 9) == [large.clone()], "{}", setup.name);
    });
}

#[test]
fn scans_follow_the_order_of_keys() {
    on_each(|setup, store| {
        let mut kv = store.key_value(&tables()).unwrap();
        kv.begin(Begin::Immediate).unwrap();
        for key in [300_i64, -1, 2, i64::MIN, 0, i64::MAX, 255] {
            kv.insert(0, Key::Int(key), key.to_string().as_bytes()).unwrap();
        }
        for key in [&b"b"[..], b"\0", b"a\0", b"a", b"\xff", b"ab"] {
            kv.insert(1, Key::Blob(key), key).unwrap();
        }
        let in_order = |kv: &mut dyn KeyValue| {
            let numbers: Vec<String> = scanned(kv, 0, None, u64::MAX)
                .into_iter()
                .map(|v| String::from_utf8(v).unwrap())
                .collect();
            let expected = [i64::MIN, -1, 0, 2, 255, 300, i64::MAX].map(|k| k.to_string());
            assert_eq!(numbers, expected, "{}", setup.name);
            assert_eq!(scanned(kv, 0, Some(Key::Int(1)), 2), [b"2".to_vec(), b"255".to_vec()]);
            assert_eq!(scanned(kv, 0, Some(Key::Int(2)), 1), [b"2".to_vec()]);
            let expected: [&[u8]; 4] = [b"a\0", b"ab", b"b", b"\xff"];
            assert_eq!(scanned(kv, 1, Some(Key::Blob(b"a\0")), 9), expected, "{}", setup.name);
            assert_eq!(scanned(kv, 1, None, 2), [b"\0".to_vec(), b"a".to_vec()], "{}", setup.name);
        };
        // In the transaction that wrote them, and afterwards.
        in_order(kv.as_mut());
        kv.commit().unwrap();
        in_order(kv.as_mut());
    });
}

#[test]
fn a_rolled_back_transaction_leaves_nothing() {
    on_each(|setup, store| {
        let mut kv = store.key_value(&tables()).unwrap();
        kv.insert(0, Key::Int(1), b"kept").unwrap();
        kv.insert(0, Key::Int(2), b"kept too").unwrap();
        kv.begin(Begin::Immediate).unwrap();
        kv.update(0, Key::Int(1), b"other").unwrap();
        kv.insert(0, Key::Int(3), b"new").unwrap();
        kv.delete(0, Key::Int(2)).unwrap();
        assert_eq!(value_of(kv.as_mut(), 0, Key::Int(1)).as_deref(), Some(&b"other"[..]));
        kv.rollback().unwrap();
        kv.rollback().unwrap();
        let left = scanned(kv.as_mut(), 0, None, 9);
        assert_eq!(left, [b"kept".to_vec(), b"kept too".to_vec()], "{}", setup.name);
    });
}

#[test]
fn another_connection_sees_what_was_committed_and_nothing_else() {
    on_each(|setup, store| {
        let mut writer = store.key_value(&tables()).unwrap();
        let mut reader = store.key_value(&tables()).unwrap();
        writer.begin(Begin::Immediate).unwrap();
        writer.insert(0, Key::Int(1), b"one").unwrap();
        if setup.overlapping {
            assert_eq!(value_of(reader.as_mut(), 0, Key::Int(1)), None, "{}", setup.name);
        }
        writer.commit().unwrap();
        let seen = value_of(reader.as_mut(), 0, Key::Int(1));
        assert_eq!(seen.as_deref(), Some(&b"one"[..]), "{}", setup.name);
    });
}

/// Adds one to a counter, until it is done.
fn increment(kv: &mut dyn KeyValue, refused: &mut u64) {
    let attempt = |kv: &mut dyn KeyValue| -> Outcome<()> {
        kv.begin(Begin::Immediate)?;
        let mut count = 0;
        kv.get(0, Key::Int(0), &mut |v| count = u64::from_le_bytes(v.try_into().unwrap()))?;
        kv.update(0, Key::Int(0), &(count + 1).to_le_bytes())?;
        kv.commit()
    };
    loop {
        match attempt(kv) {
            Ok(()) => return,
            Err(Failure::Refused(..)) => *refused += 1,
            Err(worse) => panic!("{worse}"),
        }
        kv.rollback().unwrap();
    }
}

#[test]
fn no_increment_of_four_threads_is_lost() {
    const THREADS: usize = 4;
    const EACH: u64 = 250;
    on_each(|setup, store| {
        let mut kv = store.key_value(&tables()).unwrap();
        kv.insert(0, Key::Int(0), &0_u64.to_le_bytes()).unwrap();
        let start = Barrier::new(THREADS);
        let refused = Mutex::new(0);
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    let mut kv = store.key_value(&tables()).unwrap();
                    let mut mine = 0;
                    start.wait();
                    for _ in 0..EACH {
                        increment(kv.as_mut(), &mut mine);
                    }
                    *refused.lock().unwrap() += mine;
                });
            }
        });
        let count = value_of(kv.as_mut(), 0, Key::Int(0)).unwrap();
        let count = u64::from_le_bytes(count.try_into().unwrap());
        let refused = refused.into_inner().unwrap();
        assert_eq!(count, THREADS as u64 * EACH, "{}, {refused} times refused", setup.name);
    });
}

#[test]
fn an_absent_engine_says_why_and_what_installs_it() {
    for entry in catalogue::all(&[]).unwrap() {
        if let Presence::Absent { why, install } = entry.presence {
            assert!(!why.is_empty() && !install.is_empty(), "{}", entry.name);
        }
    }
}
