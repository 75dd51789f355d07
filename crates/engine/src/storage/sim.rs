//! A file system in memory that crashes and fails on demand.
//!
//! What a crash ([`SimStorage::crash`]) may do, each choice drawn from the seed:
//! - every 512-byte sector written since the last successful sync of its file has any of its
//!   contents since then, or a mixture: the first k bytes of one and the rest of an older one. A
//!   sector never holds bytes that were not written to it, and sectors do not depend on each other;
//! - the length of a file is the last synced one or the newest;
//! - of the creations, removals and renames since the last `sync_dir_of`, a prefix survives.
//!
//! So damage of a neighbouring sector, or of a synced one that is rewritten with equal bytes, is
//! not simulated: Plait relies on storage that leaves those alone (as SQLite's POWERSAFE_OVERWRITE
//! does).
//!
//! What an injected failure ([`SimStorage::fail`]) does: the n-th operation of that kind from then
//! on fails with the given errno, once or for ever. A failing write has written a prefix. After a
//! failing sync the file still reads as written, but later syncs do not write the dirty sectors to
//! the disk unless they are written again (as Linux).
//!
//! [`SimStorage::watch`] calls a test before every operation that changes something, so that the
//! test can look at a crash at any point.
//!
//! Open handles stay usable after `crash`, but belong to the world before it.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::{FileIdentity, Folder, Storage, StorageFile};

const SECTOR: usize = 512;

/// Operations that can be made to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SimOp {
    /// `write_at`.
    Write,
    /// `sync_data`.
    Sync,
    /// `create`, `remove`, `rename`, `sync_dir_of`.
    Dir,
}

#[derive(Debug, Clone, Copy)]
struct Fault {
    nth: u64,
    errno: i32,
    for_ever: bool,
}

#[derive(Debug, Default)]
struct Control {
    capacity: Option<u64>,
    counts: BTreeMap<SimOp, u64>,
    faults: BTreeMap<SimOp, Fault>,
}

impl Control {
    fn step(&mut self, op: SimOp) -> io::Result<()> {
        let count = self.counts.entry(op).or_default();
        *count += 1;
        match self.faults.get(&op) {
            Some(f) if *count == f.nth || (f.for_ever && *count > f.nth) => {
                Err(io::Error::from_raw_os_error(f.errno))
            }
            _ => Ok(()),
        }
    }
}

#[derive(Debug, Default)]
struct FileState {
    now: Vec<u8>,
    disk: Vec<u8>,
    /// Contents of each dirty sector since the last sync, oldest first. `disk` has the synced one.
    dirty: BTreeMap<usize, Vec<Vec<u8>>>,
}

type SharedFile = Arc<Mutex<FileState>>;
type Names = BTreeMap<PathBuf, SharedFile>;

type Watcher = Box<dyn FnMut(&SimStorage) + Send>;

#[derive(Default)]
struct Watch(Mutex<Option<Watcher>>);

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Watch")
    }
}

/// The simulated file system; clones share it.
#[derive(Debug, Clone, Default)]
pub struct SimStorage {
    names: Arc<Mutex<(Names, Vec<Names>)>>,
    control: Arc<Mutex<Control>>,
    watch: Arc<Watch>,
}

#[derive(Debug)]
struct SimFile {
    state: SharedFile,
    storage: SimStorage,
    read_only: bool,
}

/// The one folder.
#[derive(Debug)]
struct SimFolder(SimStorage);

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no test thread panicked inside the simulator")
}

fn sector_of(bytes: &[u8], sector: usize) -> Vec<u8> {
    let mut out = vec![0; SECTOR];
    let start = (sector * SECTOR).min(bytes.len());
    let end = ((sector + 1) * SECTOR).min(bytes.len());
    out[..end - start].copy_from_slice(&bytes[start..end]);
    out
}

impl FileState {
    fn write(&mut self, buf: &[u8], offset: usize) {
        if buf.is_empty() {
            return;
        }
        let end = offset + buf.len();
        if self.now.len() < end {
            self.now.resize(end, 0);
        }
        self.now[offset..end].copy_from_slice(buf);
        for sector in offset / SECTOR..=(end - 1) / SECTOR {
            let content = sector_of(&self.now, sector);
            self.dirty.entry(sector).or_default().push(content);
        }
    }

    fn sync(&mut self) {
        let dirty = std::mem::take(&mut self.dirty);
        self.disk.resize(self.now.len(), 0);
        for sector in dirty.into_keys() {
            let start = sector * SECTOR;
            let end = (start + SECTOR).min(self.now.len());
            if start < end {
                self.disk[start..end].copy_from_slice(&self.now[start..end]);
            }
        }
    }

    fn after_crash(&self, rng: &mut StdRng) -> Vec<u8> {
        let len = if rng.random() { self.now.len() } else { self.disk.len() };
        let mut out = self.disk.clone();
        out.resize(self.now.len().max(self.disk.len()), 0);
        for (&sector, versions) in &self.dirty {
            let mut all = vec![sector_of(&self.disk, sector)];
            all.extend(versions.iter().cloned());
            let newer = rng.random_range(0..all.len());
            let older = rng.random_range(0..=newer);
            let cut = if rng.random() { SECTOR } else { rng.random_range(0..SECTOR) };
            let mut content = all[older].clone();
            content[..cut].copy_from_slice(&all[newer][..cut]);
            let start = sector * SECTOR;
            let end = (start + SECTOR).min(out.len());
            if start < end {
                out[start..end].copy_from_slice(&content[..end - start]);
            }
        }
        out.resize(len, 0);
        out
    }
}

impl SimStorage {
    /// An empty file system.
    pub fn new() -> SimStorage {
        SimStorage::default()
    }

    /// Returns what a power cut now would leave.
    pub fn crash(&self, seed: u64) -> SimStorage {
        let mut rng = StdRng::seed_from_u64(seed);
        let guard = locked(&self.names);
        let (now, undurable) = &*guard;
        let surviving = rng.random_range(0..=undurable.len());
        let names = if surviving == undurable.len() { now } else { &undurable[surviving] };
        let after = names
            .iter()
            .map(|(path, file)| {
                let content = locked(file).after_crash(&mut rng);
                let state =
                    FileState { now: content.clone(), disk: content, dirty: BTreeMap::new() };
                (path.clone(), Arc::new(Mutex::new(state)))
            })
            .collect();
        SimStorage { names: Arc::new(Mutex::new((after, Vec::new()))), ..SimStorage::default() }
    }

    /// Calls `watcher` before every operation that changes something, until `unwatch`.
    pub fn watch(&self, watcher: impl FnMut(&SimStorage) + Send + 'static) {
        *locked(&self.watch.0) = Some(Box::new(watcher));
    }

    /// Ends `watch`.
    pub fn unwatch(&self) {
        *locked(&self.watch.0) = None;
    }

    /// Makes the `nth` operation of the kind fail (from 1, counted from now), and all later ones if
    /// `for_ever`.
    pub fn fail(&self, op: SimOp, nth: u64, errno: i32, for_ever: bool) {
        let mut control = locked(&self.control);
        let done = control.counts.get(&op).copied().unwrap_or(0);
        control.faults.insert(op, Fault { nth: done + nth, errno, for_ever });
    }

    /// Ends all injected failures. The capacity stays.
    pub fn heal(&self) {
        locked(&self.control).faults.clear();
    }

    /// Limits the disk: no file can grow beyond `bytes`. What is allocated can be written.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        locked(&self.control).capacity = bytes;
    }

    /// Operations of the kind so far.
    pub fn count(&self, op: SimOp) -> u64 {
        locked(&self.control).counts.get(&op).copied().unwrap_or(0)
    }

    /// Changes a file durably, outside its handles.
    pub fn tamper(&self, path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
        let guard = locked(&self.names);
        let mut state = locked(guard.0.get(path).expect("the file to tamper with"));
        let mut bytes = state.now.clone();
        change(&mut bytes);
        state.now.clone_from(&bytes);
        state.disk = bytes;
        state.dirty.clear();
    }

    fn step(&self, op: SimOp) -> io::Result<()> {
        if let Some(watcher) = &mut *locked(&self.watch.0) {
            watcher(self);
        }
        locked(&self.control).step(op)
    }

    fn handle(&self, path: &Path, read_only: bool) -> io::Result<Box<dyn StorageFile>> {
        let guard = locked(&self.names);
        let state = guard.0.get(path).ok_or(io::ErrorKind::NotFound)?;
        Ok(Box::new(SimFile { state: Arc::clone(state), storage: self.clone(), read_only }))
    }

    fn change_names(&self, change: impl FnOnce(&mut Names) -> io::Result<()>) -> io::Result<()> {
        self.step(SimOp::Dir)?;
        let mut guard = locked(&self.names);
        let before = guard.0.clone();
        change(&mut guard.0)?;
        guard.1.push(before);
        Ok(())
    }
}

impl Storage for SimStorage {
    fn open(&self, path: &Path) -> io::Result<Box<dyn StorageFile>> {
        self.handle(path, false)
    }

    fn open_read_only(&self, path: &Path) -> io::Result<Box<dyn StorageFile>> {
        self.handle(path, true)
    }

    fn create(&self, path: &Path, _mode: u32) -> io::Result<Box<dyn StorageFile>> {
        self.change_names(|names| {
            names.insert(path.to_owned(), SharedFile::default());
            Ok(())
        })?;
        self.handle(path, false)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        Ok(locked(&self.names).0.contains_key(path))
    }

    fn identity_at(&self, path: &Path) -> io::Result<Option<FileIdentity>> {
        Ok(locked(&self.names).0.get(path).map(identity_of))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.change_names(|names| {
            names.remove(path).map(|_| ()).ok_or_else(|| io::ErrorKind::NotFound.into())
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.change_names(|names| {
            let file = names.remove(from).ok_or(io::ErrorKind::NotFound)?;
            names.insert(to.to_owned(), file);
            Ok(())
        })
    }

    fn open_dir_of(&self, _path: &Path) -> io::Result<Box<dyn Folder>> {
        Ok(Box::new(SimFolder(self.clone())))
    }
}

impl Folder for SimFolder {
    fn sync(&self) -> io::Result<()> {
        self.0.step(SimOp::Dir)?;
        locked(&self.0.names).1.clear();
        Ok(())
    }
}

fn identity_of(file: &SharedFile) -> FileIdentity {
    (0, Arc::as_ptr(file).addr() as u64)
}

impl SimFile {
    fn writable(&self) -> io::Result<()> {
        if self.read_only {
            return Err(io::Error::from_raw_os_error(libc::EBADF));
        }
        Ok(())
    }
}

impl StorageFile for SimFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let state = locked(&self.state);
        let start = (offset as usize).min(state.now.len());
        let n = buf.len().min(state.now.len() - start);
        buf[..n].copy_from_slice(&state.now[start..start + n]);
        Ok(n)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.writable()?;
        let mut outcome = self.storage.step(SimOp::Write);
        let end = offset + buf.len() as u64;
        let capacity = locked(&self.storage.control).capacity.unwrap_or(u64::MAX);
        if end > capacity && end > locked(&self.state).now.len() as u64 {
            outcome = Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        let written = if outcome.is_ok() { buf.len() } else { buf.len() / 2 };
        locked(&self.state).write(&buf[..written], offset as usize);
        outcome
    }

    fn sync_data(&self) -> io::Result<()> {
        self.writable()?;
        let outcome = self.storage.step(SimOp::Sync);
        let mut state = locked(&self.state);
        match outcome {
            Ok(()) => state.sync(),
            Err(_) => state.dirty.clear(),
        }
        outcome
    }

    fn len_at(&self, path: &Path) -> io::Result<Option<u64>> {
        let is_it = self.storage.identity_at(path)? == Some(self.identity()?);
        is_it.then(|| self.len_bytes()).transpose()
    }

    fn identity(&self) -> io::Result<FileIdentity> {
        Ok(identity_of(&self.state))
    }

    fn len_bytes(&self) -> io::Result<u64> {
        Ok(locked(&self.state).now.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn synced_bytes_survive_every_crash_and_unsynced_ones_only_some() {
        let storage = SimStorage::new();
        let path = Path::new("f");
        let file = storage.create(path, 0o644).expect("create");
        file.write_at(&[1; 4096], 0).expect("write");
        file.sync_data().expect("sync");
        storage.sync_dir_of(path).expect("sync dir");
        file.write_at(&[2; 4096], 2048).expect("write");
        let (mut lost, mut kept) = (0, 0);
        for seed in 0..200 {
            let after = storage.crash(seed).open(path).expect("the file survives");
            let mut bytes = vec![0; 8192];
            let n = after.read_at(&mut bytes, 0).expect("read");
            assert!(bytes[..2048].iter().all(|b| *b == 1), "seed {seed}");
            for b in &bytes[2048..n] {
                match b {
                    2 => kept += 1,
                    _ => lost += 1,
                }
            }
        }
        assert!(lost > 1000 && kept > 1000);
    }

    #[test]
    fn a_failed_sync_drops_what_was_dirty() {
        let storage = SimStorage::new();
        let path = Path::new("f");
        let file = storage.create(path, 0o644).expect("create");
        storage.sync_dir_of(path).expect("sync dir");
        file.write_at(&[0; 512], 0).expect("write");
        file.sync_data().expect("sync");
        file.write_at(&[2; 512], 0).expect("write");
        storage.fail(SimOp::Sync, 1, libc::EIO, false);
        assert!(file.sync_data().is_err());
        assert!(file.sync_data().is_ok());
        let mut bytes = [9; 512];
        storage.crash(1).open(path).expect("open").read_at(&mut bytes, 0).expect("read");
        assert_eq!(bytes, [0; 512]);
    }
}
