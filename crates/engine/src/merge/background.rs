//! Merges beside commits: a thread that lives as long as there is something to merge.
//!
//! A merge of several generations takes seconds on a large table. The committer that finds one due has better things to do, and mostly
//! another processor, or the disk's waiting time, is free for it. Without a thread (`PRAGMA plait_background_merge=0`, a program that
//! configured SQLite for one thread, or none to be had) he merges himself.
//!
//! | the thread | when | and then |
//! |---|---|---|
//! | is not there | nothing is due, or somebody merges | the next commit looks again |
//! | merges | a commit of this process has found a merge due that nobody makes | again if another commit has called meanwhile, else it ends |
//! | looks every [`NAP`], for [`LONGEST`] | readers from before the merge held its checkpoint back | as after a merge; what is left the next merge brings |
//! | has failed, and ended | the merge ended with an error | nobody starts it for a moment (`REST` in database/worker.rs); who runs out of room merges himself, and is told why |

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::database::Database;
use crate::error::Result;
use crate::ids::SlotIndex;
use crate::sync::wait;

/// Between two looks for readers that hold back a checkpoint, and for how long is looked.
const NAP: Duration = Duration::from_millis(5);
const LONGEST: Duration = Duration::from_millis(500);

/// Has a merge made beside, if one is due that nobody makes; false if it cannot be.
pub(crate) fn merge_beside(database: &Arc<Database>) -> bool {
    let is_made = database.control().merge_owner.load(Relaxed) != 0;
    is_made
        || !database.merge_is_due()
        || database.worker().call(|| {
            let database = database.clone();
            Box::new(move |is_stopped| merge(&database, is_stopped))
        })
}

/// Is a merge due that a thread makes, so that who needs room can wait for it? He whose own transaction merged would be away for as long as
/// it takes, and in the checkpoint behind it, while others go on. Not where the thread has just failed: who merges himself is told why.
pub(crate) fn will_be_merged_beside(database: &Arc<Database>) -> bool {
    database.merge_is_due() && !database.worker().has_just_failed() && merge_beside(database)
}

/// An error leaves the generations frozen. A panic has poisoned the database (O2 in database/merge_right.rs).
fn merge(database: &Database, is_stopped: &dyn Fn() -> bool) -> Result<()> {
    let slot = database.borrow_slot()?;
    database.merge_if_due(slot.index())?;
    finish(is_stopped, database, slot.index())
}

/// Transactions from before a merge keep its pages from the database file, and the next one would lengthen the WAL by as much again. They
/// end soon, mostly.
fn finish(is_stopped: &dyn Fn() -> bool, database: &Database, slot: SlotIndex) -> Result<()> {
    let is_over = || {
        let is_over = database.finish_checkpoint(slot)? || database.merge_is_due() || is_stopped();
        Ok(is_over.then_some(()))
    };
    wait::until(LONGEST, NAP, is_over).map(|_| ())
}
