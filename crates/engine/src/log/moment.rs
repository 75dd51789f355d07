//! Whether a log's file and the shared memory beside it are of one moment, when no process uses either.
//!
//! What is in the file was published in memory before, and what memory says is written has been. So a file with frames behind the end
//! that memory knows means that memory is an older copy; and one that lacks what was written, that the file is. Both may be put
//! there by somebody after all processes have died. In a crash neither comes to be: the page cache outlives processes.

use std::path::Path;

use super::error::LogError;
use super::file::{FileHeader, open_error};
use super::frame::{self, FRAME_HEADER_BYTES};
use super::scan::Stream;
use super::shared::LogShared;
use crate::ids::{Generation, Lsn};
use crate::storage::Storage;

/// What a log is to the shared memory beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// As memory left it.
    Same,
    /// It holds commits that memory does not know.
    LogIsNewer,
    /// It lacks commits that memory has written.
    LogIsOlder,
}

impl LogShared {
    /// Compares with the log at `path`, where the base includes everything through `merged`.
    ///
    /// # Errors
    /// As [`LogScan::salt_of`](super::LogScan::salt_of); [`LogError::Foreign`]; [`LogError::Corrupt`] if it contradicts itself.
    pub fn compare(
        &self,
        storage: &dyn Storage,
        path: &Path,
        merged: Generation,
    ) -> Result<Moment, LogError> {
        let file = storage.open_read_only(path).map_err(|e| open_error(path, &e))?;
        let header = FileHeader::read(&*file, path)?;
        if header.salt != self.salt() {
            return Err(LogError::Foreign {
                path: path.to_owned(),
                log_salt: header.salt,
                base_salt: self.salt(),
                has_frames: true,
            });
        }
        let mut stream = Stream::open(file, path, &header)?;
        if stream.last_segment() > self.segment_before(self.log_end()).map_or(0, |s| s.number) {
            return Ok(Moment::LogIsNewer);
        }
        stream.sort(merged)?;
        let mut bytes = Vec::new();
        if stream.frame(self.log_end(), &mut bytes)?.is_ok() {
            return Ok(Moment::LogIsNewer);
        }
        let is_whole = self.holds_what_was_written(&mut stream, merged)?;
        Ok(if is_whole { Moment::Same } else { Moment::LogIsOlder })
    }

    /// Whether the frames of the generation that was written last stand there, one behind the other, as far as it was written.
    fn holds_what_was_written(
        &self,
        stream: &mut Stream,
        merged: Generation,
    ) -> Result<bool, LogError> {
        let written = self.written_through();
        let Some(last) = self.segment_before(written).filter(|last| last.generation > merged)
        else {
            // Nothing, or what may have been overwritten since.
            return Ok(true);
        };
        let mut at = last.generation_start;
        let mut bytes = Vec::new();
        while at < written {
            let end = match stream.frame(at, &mut bytes)? {
                Ok(frame) if frame.generation == last.generation => Some(frame.end()),
                Ok(_) => None,
                // Its author was killed before he had written all of it.
                Err(_) => begun_before(&bytes, at, written),
            };
            match end {
                Some(end) => at = end,
                None => return Ok(false),
            }
        }
        Ok(true)
    }
}

/// The end of a frame at `at`, if less of it than that was written.
fn begun_before(bytes: &[u8], at: Lsn, written: Lsn) -> Option<Lsn> {
    if written - at < FRAME_HEADER_BYTES as u64 {
        return Some(written);
    }
    let len = frame::stated_len(bytes, at).ok()?;
    Some(at + len as u64).filter(|end| *end > written)
}
