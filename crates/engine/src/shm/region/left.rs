//! What killed processes with another layout have left in shared memory.
//!
//! A session of this version cannot read that memory, and would begin anew from the log alone. That
//! lacks what was acknowledged under NORMAL and OFF and not written yet. So the header says, for
//! every later version, where the few words are that tell whether there is such a commit.
//!
//! Invariant
//! - LEFT-1 The fields of [`Header`] keep their places, and [`TOLD`] its meaning, in all versions:
//!   memory whose header has zeros there is from before layout 25, and nothing is known of it.

use std::fs::File;
use std::mem::offset_of;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::Ordering::Relaxed;

use super::{BaseIdentity, Region, boot_id};
use crate::error::Error;
use crate::log::LogShared;
use crate::shm::layout::{Control, Header, LAYOUT_VERSION, Layout, MAGIC, session};

/// What the header tells: the offsets in the file of the salt (u32), and of the end of the log, the
/// end of what is written, the newest timestamp that readers see and the newest one that is on disk
/// (u64 each).
pub(super) const TOLD: [usize; 5] = [
    offset_of!(Layout, log) + LogShared::SALT_AT,
    offset_of!(Layout, log) + LogShared::LOG_END_AT,
    offset_of!(Layout, log) + LogShared::WRITTEN_AT,
    offset_of!(Layout, control) + offset_of!(Control, readable_ts),
    offset_of!(Layout, log) + LogShared::DURABLE_TS_AT,
];

impl Region {
    /// Writes what later versions need.
    pub(super) fn tell_later_versions(&self) {
        for (word, at) in self.header().told.iter().zip(TOLD) {
            // Relaxed: `publish` releases the header.
            word.store(at as u32, Relaxed);
        }
    }

    /// Fails if processes of this boot, with another layout, have left commits of the session
    /// `salt` of `base` that the log lacks and that were acknowledged. No process uses the file.
    ///
    /// # Errors
    /// CantOpen.
    pub(crate) fn refuse_left_by_another(
        &self,
        base: BaseIdentity,
        salt: u32,
    ) -> Result<(), Error> {
        match left_by_another(self.file(), base, salt) {
            None => Ok(()),
            Some(layout) => Err(Error::CantOpen(format!(
                "{} has the newest commits under synchronous=NORMAL or OFF, which the log lacks: killed processes \
                 had another version of the library (layout {layout} of shared memory, this one has \
                 {LAYOUT_VERSION}); run `plait recover` of that version, or give these commits up: remove this \
                 one file while no program has the database open",
                self.path().display()
            ))),
        }
    }
}

/// Returns the layout of processes of this boot that have left in `file`, shared memory, commits of
/// the session `salt` of `base` that the log lacks and that were acknowledged, if it is not ours. No
/// process uses the file. `None` too if it cannot be read: the opening that follows says so.
pub fn left_by_another(file: &File, base: BaseIdentity, salt: u32) -> Option<u32> {
    let (half, whole) = (|at| number::<4>(file, at), |at| number::<8>(file, at));
    let layout = layout_of(file)?;
    let is_of_this_boot = || {
        let mut id = [0; 40];
        let at = offset_of!(Header, boot_id) as u64;
        file.read_exact_at(&mut id, at).is_ok() && boot_id().is_ok_and(|own| own == id)
    };
    let is_left = layout != LAYOUT_VERSION
        && whole(offset_of!(Header, magic))? == MAGIC
        && half(offset_of!(Header, state))? == u64::from(session::LIVE)
        && whole(offset_of!(Header, base_dev))? == base.dev
        && whole(offset_of!(Header, base_ino))? == base.ino
        && is_of_this_boot();
    if !is_left {
        return None;
    }
    let mut told = [0; TOLD.len()];
    for (index, at) in told.iter_mut().enumerate() {
        *at = usize::try_from(half(offset_of!(Header, told) + 4 * index)?).ok()?;
    }
    let [salt_at, end_at, written_at, readable_at, durable_at] = told;
    // A frame in the ring alone may be of a commit under FULL that was not acknowledged: then
    // readers have not seen more than is on disk.
    let is_lost = salt_at != 0
        && half(salt_at)? == u64::from(salt)
        && whole(end_at)? > whole(written_at)?
        && whole(readable_at)? > whole(durable_at)?;
    is_lost.then_some(layout)
}

/// Returns the layout that the file says it has.
pub(super) fn layout_of(file: &File) -> Option<u32> {
    number::<4>(file, offset_of!(Header, layout_version)).map(|number| number as u32)
}

/// Reads a number of so many bytes.
fn number<const BYTES: usize>(file: &File, at: usize) -> Option<u64> {
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes[..BYTES], at as u64).ok()?;
    Some(u64::from_ne_bytes(bytes))
}
