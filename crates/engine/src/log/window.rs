//! The ring's window: the part of the ring that frames take turns in.
//!
//! A ring must be long enough for the longest frame, yet most frames are short, and what they take turns in had better be
//! small: it stays in the processors' caches, and every process soon has all of its pages mapped. So stream position `p` is
//! at ring offset `p % window_bytes`, and the window is the whole ring only while there are long frames.
//!
//! Moving it (all under the commit mutex, in `append`)
//!
//! | window | frame | everything written to the file | what is done |
//! |---|---|---|---|
//! | small | short | - | nothing |
//! | small | long | yes | becomes the whole ring |
//! | small | long | no | `RingFull`: the caller has it written and comes again |
//! | whole ring | long | - | nothing |
//! | whole ring | short | yes | becomes small |
//! | whole ring | short | no | nothing |
//!
//! Invariants
//! - **W1** The window moves only while `written_through == log_end`: nobody reads the ring to write it then, and who reads it
//!   later has seen a `log_end` that was published behind the move.
//! - **W2** Nothing before `window_start` may be read, but for the checksum of the last frame, which the next one continues.
//! - **W3** A kill between any two stores of a move leaves a window in which that checksum is in its place.

use std::sync::atomic::Ordering::{Relaxed, Release};

use super::error::AppendError;
use super::ring::Ring;
use crate::crash_point;
use crate::ids::Lsn;

/// Bytes of a frame's checksum, its last.
pub(super) const CRC_BYTES: u64 = 4;

impl Ring {
    /// (M) Bytes of the window in which a frame of `frame_len` bytes can go, at `start` behind `log_end`.
    pub(super) fn window_for(
        &self,
        frame_len: u64,
        start: Lsn,
        log_end: Lsn,
    ) -> Result<u64, AppendError> {
        let shared = self.shared();
        // Between generations nothing is in the ring, and so nothing unwritten.
        let written = shared.skip_gap(shared.written_through(), log_end);
        let is_written = written >= log_end;
        let now = shared.window_bytes();
        let wanted = shared.window_of(frame_len);
        if wanted > now && !is_written {
            return Err(AppendError::RingFull);
        }
        let window = if is_written { wanted } else { now };
        // Invariant 1 of the log: the bytes that this frame overwrites are in the file.
        let is_free =
            is_written || (start + frame_len).get().saturating_sub(window) <= written.get();
        if is_free { Ok(window) } else { Err(AppendError::RingFull) }
    }

    /// (M) The window as it is, if what a frame through `end` overwrites is in the file.
    pub(super) fn window_kept(&self, end: Lsn) -> Result<u64, AppendError> {
        let now = self.shared().window_bytes();
        let written = self.shared().written_through();
        let is_free = end.get().saturating_sub(now) <= written.get();
        if is_free { Ok(now) } else { Err(AppendError::RingFull) }
    }

    /// (M) Makes the window that many bytes, as [`Ring::window_for`] found.
    pub(super) fn move_window(&self, bytes: u64, log_end: Lsn, last_crc: Option<[u8; 4]>) {
        let commit = &self.shared().commit;
        // Relaxed: changes under the commit mutex only, which is held.
        if bytes == commit.window_bytes.load(Relaxed) {
            return;
        }
        // Release throughout: should this process be killed, the next holder of the mutex finds these in this order (W3).
        commit.window_start.store(log_end.get(), Release);
        if let Some(crc) = last_crc {
            self.put_crc(bytes, log_end, crc);
        }
        crash_point!("log.window.copied");
        // A killed committer's frame went to the old place: it keeps nothing from being read here.
        commit.reserved_end.store(log_end.get(), Release);
        commit.window_bytes.store(bytes, Release);
        crash_point!("log.window.moved");
    }
}
