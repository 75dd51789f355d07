//! The write set against ordered maps, one copy per savepoint.

use std::convert::Infallible;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

type State = BTreeMap<(u32, Vec<u8>), (WriteKind, Vec<u8>)>;

#[derive(Clone, Debug)]
enum Op {
    Put(u32, Vec<u8>, usize),
    PutMax(u32, Vec<u8>),
    Delete(u32, Vec<u8>),
    Open(usize),
    Release(usize),
    Rollback(i32),
    /// Of a statement, by its number.
    Begin(u64),
    End(u64),
    Refuse(u64),
    Clear,
}

fn op_strategy() -> impl Strategy<Value = Op> {
    let byte = prop_oneof![Just(0u8), Just(b'a'), Just(0xff)];
    let at = (1u32..4, vec(byte, 0..3));
    prop_oneof![
        8 => (at.clone(), 0usize..20).prop_map(|((root, key), len)| Op::Put(root, key, len)),
        2 => at.clone().prop_map(|(root, key)| Op::PutMax(root, key)),
        4 => at.prop_map(|(root, key)| Op::Delete(root, key)),
        4 => (0usize..4).prop_map(Op::Open),
        2 => (0usize..4).prop_map(Op::Release),
        3 => (-1i32..4).prop_map(Op::Rollback),
        4 => (1u64..4).prop_map(Op::Begin),
        3 => (1u64..4).prop_map(Op::End),
        2 => (1u64..4).prop_map(Op::Refuse),
        1 => Just(Op::Clear),
    ]
}

/// The obvious implementation.
#[derive(Default)]
struct Model {
    now: State,
    /// What was there when each open savepoint was opened, and the statement that it belongs to, if
    /// any.
    saved: Vec<(Option<u64>, State)>,
}

impl Model {
    fn numbered(&self) -> Vec<&State> {
        self.saved.iter().filter(|(of, _)| of.is_none()).map(|(_, state)| state).collect()
    }

    fn at(&self, i: usize) -> Option<usize> {
        let mut at = self.saved.iter().enumerate().filter(|(_, (of, _))| of.is_none());
        at.nth(i).map(|(at, _)| at)
    }

    fn of(&self, id: u64) -> Option<usize> {
        self.saved.iter().rposition(|(of, _)| *of == Some(id))
    }

    /// Statements that began later go on from there.
    fn go_back_to(&mut self, at: usize) {
        self.now = self.saved[at].1.clone();
        let later = self.saved.split_off(at + 1);
        let statements = later.into_iter().filter(|(of, _)| of.is_some());
        self.saved.extend(statements.map(|(of, _)| (of, self.now.clone())));
    }

    fn apply(&mut self, op: &Op, stamp: u8) {
        match op.clone() {
            Op::Put(root, key, zeros) => {
                let rec = [vec![stamp], vec![0; zeros]].concat();
                self.now.insert((root, key), (WriteKind::Put, rec));
            }
            Op::PutMax(root, key) => {
                let kind = match self.now.get(&(root, key.clone())) {
                    None | Some((WriteKind::PutMax, _)) => WriteKind::PutMax,
                    Some(_) => WriteKind::Put,
                };
                self.now.insert((root, key), (kind, vec![stamp]));
            }
            Op::Delete(root, key) => {
                self.now.insert((root, key), (WriteKind::Tombstone, vec![stamp]));
            }
            Op::Open(n) => {
                while self.numbered().len() < n {
                    self.saved.push((None, self.now.clone()));
                }
            }
            Op::Release(i) => {
                if let Some(at) = self.at(i) {
                    let later = self.saved.split_off(at);
                    self.saved.extend(later.into_iter().filter(|(of, _)| of.is_some()));
                }
            }
            Op::Rollback(-1) | Op::Clear => *self = Model::default(),
            Op::Rollback(i) => {
                if let Some(at) = self.at(i as usize) {
                    self.go_back_to(at);
                }
            }
            Op::Begin(id) => self.saved.push((Some(id), self.now.clone())),
            Op::End(id) => {
                if let Some(at) = self.of(id) {
                    drop(self.saved.remove(at));
                }
            }
            Op::Refuse(id) => {
                if let Some(at) = self.of(id) {
                    self.go_back_to(at);
                    drop(self.saved.remove(at));
                }
            }
        }
    }
}

fn apply(set: &mut WriteSet, op: &Op, stamp: u8) {
    match op {
        Op::Put(root, key, zeros) => set.put(Root::new(*root), key, &[stamp], *zeros).unwrap(),
        Op::PutMax(root, key) => set.put_max(Root::new(*root), key, &[stamp], 0).unwrap(),
        Op::Delete(root, key) => set.delete(Root::new(*root), key, &[stamp]).unwrap(),
        Op::Open(n) => set.savepoint_open(*n),
        Op::Release(i) => set.savepoint_release(*i),
        Op::Rollback(i) => set.savepoint_rollback(*i),
        Op::Begin(id) => set.statement_open(*id),
        Op::End(id) => set.statement_close(*id),
        Op::Refuse(id) => drop(set.statement_rollback(*id)),
        Op::Clear => set.clear(),
    }
}

fn state(set: &WriteSet) -> State {
    set.iter()
        .map(|(root, key, w)| ((root.get(), key.to_vec()), (w.kind(), w.rec().to_vec())))
        .collect()
}

fn replayed(set: &WriteSet) -> Model {
    let mut model = Model::default();
    let result: Result<(), Infallible> = set.replay(|step| {
        match step {
            Step::Savepoint(n) => {
                model.saved.push((None, model.now.clone()));
                assert_eq!(model.saved.len(), n);
            }
            Step::Write(root, key, w) => {
                model.now.insert((root.get(), key.to_vec()), (w.kind(), w.rec().to_vec()));
            }
        }
        Ok(())
    });
    let Ok(()) = result;
    model
}

fn model_seek(keys: &[&[u8]], seek: Seek<'_>) -> Option<Vec<u8>> {
    let mut keys = keys.iter().copied();
    let found = match seek {
        Seek::First => keys.next(),
        Seek::Ge(k) => keys.find(|key| *key >= k),
        Seek::Gt(k) => keys.find(|key| *key > k),
        Seek::PrefixGt(k) => keys.find(|key| *key > k && !key.starts_with(k)),
        Seek::Last => keys.next_back(),
        Seek::Le(k) => keys.rfind(|key| *key <= k),
        Seek::Lt(k) => keys.rfind(|key| *key < k),
        Seek::PrefixLe(k) => keys.rfind(|key| *key <= k || key.starts_with(k)),
    };
    found.map(<[u8]>::to_vec)
}

fn check_undo(set: &WriteSet) -> Result<(), TestCaseError> {
    if set.savepoints.is_empty() {
        prop_assert!(set.undo.is_empty());
    }
    let mut ends: Vec<usize> = set.savepoints.iter().skip(1).map(|s| s.undo_len).collect();
    ends.push(set.undo.len());
    for (savepoint, end) in set.savepoints.iter().zip(ends) {
        let keys: Vec<_> =
            set.undo[savepoint.undo_len..end].iter().map(|u| (u.root, u.key())).collect();
        let mut unique = keys.clone();
        unique.sort();
        unique.dedup();
        prop_assert_eq!(unique.len(), keys.len(), "WRITES-1");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    // holds WRITES-6
    #[test]
    fn savepoints_and_statements_take_back_what_copies_would((ops, probes) in (vec(op_strategy(), 0..60), vec(vec(any::<u8>(), 0..3), 4))) {
        let mut set = WriteSet::new();
        let mut model = Model::default();
        for (stamp, op) in ops.iter().enumerate() {
            let (before, versions) = (state(&set), [1, 2, 3].map(|r| set.root_version(Root::new(r))));
            apply(&mut set, op, stamp as u8);
            model.apply(op, stamp as u8);
            let now = state(&set);
            prop_assert_eq!(&now, &model.now);
            prop_assert_eq!(set.len(), now.len());
            prop_assert_eq!(set.is_empty(), now.is_empty());
            prop_assert_eq!(set.savepoint_depth(), model.numbered().len());
            let bytes: usize = now.iter().map(|((_, key), (_, rec))| op_frame_bytes(key.len(), rec.len())).sum();
            prop_assert_eq!(set.frame_bytes(), bytes, "WRITES-2");
            check_undo(&set)?;
            for root in 1..4 {
                let of = |state: &State| state.iter().filter(|((r, _), _)| *r == root).map(|(k, v)| (k.clone(), v.clone())).collect::<Vec<_>>();
                if of(&before) != of(&now) {
                    prop_assert_ne!(set.root_version(Root::new(root)), versions[root as usize - 1], "WRITES-3");
                }
                prop_assert_eq!(set.has_root(Root::new(root)), !of(&now).is_empty());
            }
        }
        let again = replayed(&set);
        prop_assert_eq!(&again.now, &model.now);
        prop_assert_eq!(again.numbered(), model.numbered());
        for root in 1..4 {
            let keys: Vec<&[u8]> = model.now.keys().filter(|(r, _)| *r == root).map(|(_, k)| k.as_slice()).collect();
            for k in keys.iter().copied().chain(probes.iter().map(Vec::as_slice)) {
                for seek in [Seek::First, Seek::Ge(k), Seek::Gt(k), Seek::PrefixGt(k), Seek::Last, Seek::Le(k), Seek::Lt(k), Seek::PrefixLe(k)] {
                    let found = set.seek(Root::new(root), seek).map(|(key, _)| key.to_vec());
                    prop_assert_eq!(found, model_seek(&keys, seek), "{:?}", seek);
                }
            }
        }
    }
}

#[test]
fn the_bytes_of_a_write_stay_in_place_while_others_come_and_go() {
    let mut set = WriteSet::new();
    let root = Root::new(2);
    set.put(root, b"kept", b"record", 2).unwrap();
    let (key, write) = set.seek(root, Seek::First).expect("written");
    let (key_at, rec_at) = (key.as_ptr(), write.rec().as_ptr());
    for i in 0..10_000u32 {
        set.put(root, &i.to_be_bytes(), b"other", 0).unwrap();
    }
    set.savepoint_open(1);
    set.put(root, b"kept", b"changed", 0).unwrap();
    set.savepoint_rollback(0);
    let (key, write) = set.seek(root, Seek::Ge(b"kept")).expect("written");
    assert_eq!((key.as_ptr(), write.rec().as_ptr()), (key_at, rec_at));
    assert_eq!(write.rec(), b"record\0\0");
}

#[test]
fn one_row_changed_by_many_statements_leaves_one_undo_entry() {
    let mut set = WriteSet::new();
    set.savepoint_open(1);
    for i in 0..1000u32 {
        set.savepoint_open(2);
        set.put(Root::new(2), b"hot", &i.to_be_bytes(), 0).unwrap();
        set.savepoint_release(1);
    }
    assert_eq!(set.undo.len(), 1);
    set.savepoint_release(0);
    assert!(set.undo.is_empty());
    assert_eq!(set.len(), 1);
}

#[test]
fn a_maximum_over_an_own_put_is_a_put() {
    let mut set = WriteSet::new();
    let root = Root::new(4);
    set.put_max(root, b"a", b"1", 0).unwrap();
    set.put_max(root, b"a", b"2", 0).unwrap();
    assert_eq!(set.get(root, b"a").expect("written").kind(), WriteKind::PutMax);
    assert!(!set.is_decided(root, b"a") && !set.is_decided(root, b"b"));
    set.delete(root, b"a", b"").unwrap();
    set.put_max(root, b"a", b"3", 0).unwrap();
    assert_eq!(set.get(root, b"a").expect("written").kind(), WriteKind::Put);
}

#[test]
fn a_maximum_is_raised_by_what_is_committed_and_never_lowered() {
    let mut set = WriteSet::new();
    let root = Root::new(4);
    let record = |n: i64| [b"name".as_slice(), &n.to_be_bytes()].concat();
    assert!(!set.has_put_max());
    set.put_max(root, b"low", &record(5), 0).unwrap();
    set.put_max(root, b"high", &record(50), 0).unwrap();
    set.put_max(root, b"absent", &record(-7), 0).unwrap();
    set.put(root, b"plain", &record(1), 0).unwrap();
    assert!(set.has_put_max());
    for _ in 0..2 {
        set.resolve_maxima(|_, key, _| (key != b"absent").then_some(20));
    }
    let rec = |key: &[u8]| set.get(root, key).expect("written").rec().to_vec();
    assert_eq!(rec(b"low"), record(20));
    assert_eq!(rec(b"high"), record(50));
    assert_eq!(rec(b"absent"), record(-7));
    assert_eq!(rec(b"plain"), record(1));
}
