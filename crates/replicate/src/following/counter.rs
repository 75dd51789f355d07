//! The change counter by which a start tells an older file (NOTED-3).

use super::mark::Mark;
use super::{Following, target};
use crate::error::{Error, Result};

impl Following {
    /// Compares the counter of the file with the mark's (NOTED-3), and notes it.
    pub(super) fn note_counter(&mut self) -> Result<()> {
        let Some((live, mark)) = self.live.as_ref().zip(self.mark.clone()) else { return Ok(()) };
        if mark.seeding.is_some() {
            return Ok(());
        }
        let failed = |why| target(mark.record, why);
        // Behind a power cut it is not lower than the mark's.
        let is_on_disk = live.rests().map_err(failed)?;
        // The merge of what is not in the base yet raises it. Asked first: another process may make that merge meanwhile.
        let is_ahead = live.has_unmerged().map_err(failed)?;
        let counter = live.counter().map_err(failed)?;
        let will_be = counter.saturating_add(is_ahead.into());
        if will_be < mark.counter {
            return Err(Error::Replaced(format!(
                "{} is an older state of the replica than its mark tells of",
                self.settings.database.display()
            )));
        }
        self.counter = if is_on_disk { counter } else { 0 };
        // What is not in the base yet still raises it.
        let counter = if is_on_disk { counter.max(mark.counter) } else { 0 };
        match counter == mark.counter {
            true => Ok(()),
            false => self.note(Mark { counter, ..mark }, false),
        }
    }

    /// The least counter that the base will have when it has all that is committed (NOTED-3): it is raised by the merge of
    /// what is not in it yet.
    pub(super) fn counter_to_be(&mut self, mark: &Mark) -> Result<u32> {
        if self.counter == 0 || mark.counter != self.counter {
            return Ok(mark.counter);
        }
        let is_ahead = self.live()?.has_unmerged().map_err(|why| target(mark.record, why))?;
        Ok(mark.counter + u32::from(is_ahead))
    }
}
