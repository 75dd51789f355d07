//! A disk in memory whose every write is written down: a loop device over the one file of a FUSE file system that this process serves.
//!
//! ```text
//! ext4, xfs or btrfs -- loop device -- FUSE file -- [`serve`], a thread here: contents, and what was done to them in order
//! ```
//!
//! So what the kernel's own file systems send to a disk is known to the block, and where they asked for it to be kept (FLUSH; the
//! loop device has no FUA, which becomes a FLUSH). The device mapper, which has targets for this, is not in every kernel.

use crate::differential::dice::Dice;
use crate::os::mount;
use anyhow::{Context as _, ensure};
use std::collections::HashMap;
use std::fs::File;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// What a power cut leaves whole: the old content or the new.
pub const BLOCK: usize = 4096;
/// Longest write that the kernel sends at once.
const MOST: usize = 1 << 20;

type Block = [u8; BLOCK];

/// What is on a disk; blocks that are not there are zeros.
#[derive(Clone, Default)]
pub struct Contents(HashMap<u64, Arc<Block>>);

impl Contents {
    fn block(&self, number: u64) -> Block {
        self.0.get(&number).map_or([0; BLOCK], |block| **block)
    }

    fn put(&mut self, number: u64, block: Block) {
        if block.iter().all(|byte| *byte == 0) {
            self.0.remove(&number);
        } else {
            self.0.insert(number, Arc::new(block));
        }
    }

    fn write(&mut self, at: u64, data: &[u8]) {
        let mut done = 0;
        while done < data.len() {
            let number = (at + done as u64) / BLOCK as u64;
            let from = ((at + done as u64) % BLOCK as u64) as usize;
            let n = (BLOCK - from).min(data.len() - done);
            let mut block = self.block(number);
            block[from..from + n].copy_from_slice(&data[done..done + n]);
            self.put(number, block);
            done += n;
        }
    }

    fn read(&self, at: u64, length: usize) -> Vec<u8> {
        let (first, end) = (at / BLOCK as u64, (at + length as u64).div_ceil(BLOCK as u64));
        let whole: Vec<u8> = (first..end).flat_map(|number| self.block(number)).collect();
        let from = (at % BLOCK as u64) as usize;
        whole[from..from + length].to_vec()
    }
}

/// What was done to a disk.
#[derive(Clone, Debug)]
pub enum Done {
    /// Bytes were written at an offset.
    Write(u64, Vec<u8>),
    /// Everything before is to be kept.
    Flush,
    /// From here on so many commits must survive.
    Acknowledged(i64),
}

/// Which of the blocks that nobody asked to be kept a power cut leaves.
#[derive(Clone, Copy, Debug)]
pub enum Keep {
    /// All.
    All,
    /// None.
    None,
    /// A random choice.
    Random(u64),
}

/// What a power cut after these leaves, and how many commits must be there.
#[must_use]
pub fn cut(before: &Contents, done: &[Done], keep: Keep, mut acknowledged: i64) -> (Contents, i64) {
    let kept = done.iter().rposition(|done| matches!(done, Done::Flush)).unwrap_or(0);
    let mut dice = Dice::new(if let Keep::Random(seed) = keep { seed } else { 0 });
    let odds = 1 + dice.roll(9);
    let mut contents = before.clone();
    for (i, done) in done.iter().enumerate() {
        match done {
            Done::Flush => {}
            Done::Acknowledged(commits) => acknowledged = *commits,
            Done::Write(at, data) if i < kept => contents.write(*at, data),
            Done::Write(at, data) => {
                let mut from = 0;
                while from < data.len() {
                    let n = (BLOCK - (*at as usize + from) % BLOCK).min(data.len() - from);
                    let is_kept = match keep {
                        Keep::All => true,
                        Keep::None => false,
                        Keep::Random(_) => dice.roll(10) < odds,
                    };
                    if is_kept {
                        contents.write(at + from as u64, &data[from..from + n]);
                    }
                    from += n;
                }
            }
        }
    }
    (contents, acknowledged)
}

#[derive(Default)]
struct State {
    contents: Contents,
    done: Vec<Done>,
}

/// A disk that is plugged in; it is pulled out when dropped.
pub struct Disk {
    state: Arc<Mutex<State>>,
    file: PathBuf,
    device: Option<String>,
    server: Option<JoinHandle<()>>,
}

impl Disk {
    /// Plugs in a disk of so many bytes; `file`, an empty one, becomes the one that the loop device lies over.
    pub fn plug_in(contents: Contents, bytes: u64, file: &Path) -> anyhow::Result<Self> {
        File::create(file)?;
        let fuse = File::options().read(true).write(true).open("/dev/fuse");
        let fuse = fuse.context("a kernel with FUSE is needed")?;
        let options = format!("fd={},rootmode=100000,user_id=0,group_id=0", fuse.as_raw_fd());
        mount("plait", file, "fuse", 0, &options)?;
        let state = Arc::new(Mutex::new(State { contents, done: Vec::new() }));
        let served = state.clone();
        let server = std::thread::spawn(move || serve(fuse, &served, bytes));
        let mut disk = Self { state, file: file.to_owned(), device: None, server: Some(server) };
        let device = told(Command::new("losetup").args(["--find", "--show"]).arg(file))?;
        disk.device = Some(device.trim().to_owned());
        Ok(disk)
    }

    /// The block device.
    #[must_use]
    pub fn device(&self) -> &str {
        self.device.as_deref().unwrap_or_default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that so many commits must survive from now on.
    pub fn acknowledge(&self, commits: i64) {
        self.state().done.push(Done::Acknowledged(commits));
    }

    /// What is on it now; what was done until now is forgotten.
    #[must_use]
    pub fn begin(&self) -> Contents {
        let mut state = self.state();
        state.done.clear();
        state.contents.clone()
    }

    /// What was done to it.
    #[must_use]
    pub fn done(&self) -> Vec<Done> {
        self.state().done.clone()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if let Some(device) = &self.device {
            let _ = told(Command::new("losetup").arg("--detach").arg(device));
        }
        let _ = told(Command::new("umount").arg("--lazy").arg(&self.file));
        // The kernel may keep it until the loop device is gone for good; the thread ends then.
        drop(self.server.take());
    }
}

/// Runs a command and returns what it printed.
pub fn told(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}: {}", output.status, said.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Requests of the kernel (`linux/fuse.h`) that are answered otherwise than with "not implemented".
mod request {
    pub(super) const FORGET: u32 = 2;
    pub(super) const GETATTR: u32 = 3;
    pub(super) const SETATTR: u32 = 4;
    pub(super) const OPEN: u32 = 14;
    pub(super) const READ: u32 = 15;
    pub(super) const WRITE: u32 = 16;
    pub(super) const STATFS: u32 = 17;
    pub(super) const RELEASE: u32 = 18;
    pub(super) const FSYNC: u32 = 20;
    pub(super) const FLUSH: u32 = 25;
    pub(super) const INIT: u32 = 26;
    pub(super) const INTERRUPT: u32 = 36;
    pub(super) const DESTROY: u32 = 38;
    pub(super) const FALLOCATE: u32 = 43;
}

/// Bytes of a request before its arguments.
const HEAD: usize = 40;
/// Bytes of the arguments of a write before its data.
const WRITE_HEAD: usize = 40;

/// Answers the kernel until the file is unmounted.
fn serve(mut fuse: File, state: &Mutex<State>, bytes: u64) {
    let mut buffer = vec![0; MOST + (64 << 10)];
    loop {
        let length = match fuse.read(&mut buffer) {
            Ok(0) => return,
            Ok(length) => length,
            Err(e) if matches!(e.kind(), ErrorKind::Interrupted | ErrorKind::NotFound) => continue,
            Err(_) => return,
        };
        let request = &buffer[..length];
        let what = number(request, 4) as u32;
        if matches!(what, request::FORGET | request::INTERRUPT) {
            continue;
        }
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        let (error, body) = match answer(what, request, &mut state, bytes) {
            Some(body) => (0, body),
            None => (-libc::ENOSYS, Vec::new()),
        };
        let mut reply = ((16 + body.len()) as u32).to_ne_bytes().to_vec();
        reply.extend(error.to_ne_bytes());
        reply.extend(&request[8..16]);
        reply.extend(body);
        // An interrupted request is not waited for any more.
        let _ = fuse.write(&reply);
    }
}

/// The eight bytes at `at`; zeros where the request ends before.
fn number(request: &[u8], at: usize) -> u64 {
    let mut bytes = [0; 8];
    let there = request.get(at..).unwrap_or_default();
    bytes.iter_mut().zip(there).for_each(|(to, from)| *to = *from);
    u64::from_ne_bytes(bytes)
}

fn answer(what: u32, request: &[u8], state: &mut State, bytes: u64) -> Option<Vec<u8>> {
    let (offset, length) = (number(request, HEAD + 8), number(request, HEAD + 16));
    match what {
        request::INIT => Some(init()),
        request::GETATTR | request::SETATTR => Some(attributes(bytes)),
        // Without the page cache: each request comes as it is made.
        request::OPEN => Some(
            [[0, 0].as_slice(), &[1, 0]]
                .concat()
                .iter()
                .flat_map(|n: &u32| n.to_ne_bytes())
                .collect(),
        ),
        request::READ => {
            let length = (length as u32).min(bytes.saturating_sub(offset) as u32);
            Some(state.contents.read(offset, length as usize))
        }
        request::WRITE => {
            let data = &request[HEAD + WRITE_HEAD..HEAD + WRITE_HEAD + length as u32 as usize];
            state.contents.write(offset, data);
            state.done.push(Done::Write(offset, data.to_vec()));
            Some(length.to_ne_bytes()[..4].iter().copied().chain([0; 4]).collect())
        }
        // Zeros, whether asked for by that name or as a hole.
        request::FALLOCATE => {
            let data = vec![0; length as usize];
            state.contents.write(offset, &data);
            state.done.push(Done::Write(offset, data));
            Some(Vec::new())
        }
        request::FSYNC => {
            state.done.push(Done::Flush);
            Some(Vec::new())
        }
        request::FLUSH | request::RELEASE | request::DESTROY => Some(Vec::new()),
        request::STATFS => Some(vec![0; 80]),
        _ => None,
    }
}

/// Version 7.31; big writes, of so many pages.
fn init() -> Vec<u8> {
    const BIG_WRITES: u32 = 1 << 5;
    const MAX_PAGES: u32 = 1 << 22;
    let pages = (MOST / BLOCK) as u32;
    let words = [7, 31, 0, BIG_WRITES | MAX_PAGES, 8 << 16 | 12, MOST as u32, 1, pages];
    let mut body: Vec<u8> = words.iter().flat_map(|word: &u32| word.to_ne_bytes()).collect();
    body.resize(64, 0);
    body
}

/// A regular file of so many bytes that only its owner uses.
fn attributes(bytes: u64) -> Vec<u8> {
    let mut body = vec![0; 16];
    for number in [1, bytes, bytes / 512, 0, 0, 0] {
        body.extend(u64::to_ne_bytes(number));
    }
    for word in [0, 0, 0, libc::S_IFREG | 0o600, 1, 0, 0, 0, BLOCK as u32, 0] {
        body.extend(u32::to_ne_bytes(word));
    }
    body
}
