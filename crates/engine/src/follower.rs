//! The log of a session, applied to a database elsewhere while programs read that.
//!
//! The database has a session of its own, of which this process is a member: its own log, memtables and
//! merges. What the other session has committed is committed here once more, as rows: several commits
//! become one. So readers, recovery and merges are those of any database, and need no rule for this.
//!
//! - FOLLOW-1 Rows go into the trees whose roots they name. The roots are the other session's, as long as
//!   the file began as a copy of its base, and nothing else has changed the schema on either side.
//! - FOLLOW-2 A commit has all rows of the frames that were taken since the last one, the newest of each
//!   key. So it may be made again: rows of frames that are there already, with later ones, give the same.
//! - FOLLOW-3 It holds the writer's right and reads nothing, so nothing can conflict with it.

use std::sync::Arc;

use crate::crash_point;
use crate::database::{Database, StillFollows};
use crate::error::Result;
use crate::fault;
use crate::ids::Lsn;
use crate::replay::Replay;
use crate::session::Newest;
use crate::sync::wait::Wait;
use crate::txn::{Conn, Sync, WriteMode};

/// Ends the following of a database, when its mark was removed: who may write by the mark may commit again, and no
/// follower. One that runs on without its lock may be in the midst of a transaction that replaces all pages, and looks
/// at its beginning alone: it is waited for.
///
/// # Errors
/// `Full` if the database has no place for a connection; those of waiting for the writer's right.
pub fn promote(db: &Arc<Database>, wait: &mut Wait<'_>) -> Result<()> {
    if db.was_promoted() {
        return Ok(());
    }
    let mut conn = Conn::new(Arc::clone(db))?;
    conn.write_as_follower();
    conn.write_begin(WriteMode::Queued, wait)?;
    let ended = db.end_following();
    conn.rollback()?;
    ended
}

/// Applies the log of another session.
pub struct Follower {
    conn: Conn,
    frames: Replay,
    /// What the last two commits had, for a planted fault; else empty.
    before: [Newest; 2],
}

impl Follower {
    /// Begins behind a frame with the checksum `crc`, 0 if none is known, of the session with this salt. From
    /// then on nobody else commits in the session of `db` (REPLICA-3), nor do this one's connections once `still` says
    /// that another follower may have it (REPLICA-6).
    ///
    /// # Errors
    /// `Full` if the database has no place for a connection; Misuse if it was promoted, or by `still`; those of waiting for the
    /// writer's right, and of raising the fence.
    pub fn new(
        db: Arc<Database>,
        (salt, crc): (u32, u32),
        still: StillFollows,
        wait: &mut Wait<'_>,
    ) -> Result<Follower> {
        db.follow_while(still);
        let (mut conn, frames) = (Conn::new(db)?, Replay::behind(salt, crc));
        conn.write_as_follower();
        conn.write_begin(WriteMode::Queued, wait)?;
        let told = conn.database().begin_following();
        conn.rollback()?;
        told?;
        Ok(Follower { conn, frames, before: Default::default() })
    }

    /// The database that it writes.
    pub fn database(&self) -> &Arc<Database> {
        self.conn.database()
    }

    /// Takes whole frames that begin at `from`; nothing is committed yet.
    ///
    /// # Errors
    /// `Corrupt` if they are not sound, or do not follow the last ones.
    pub fn take(&mut self, bytes: &[u8], from: Lsn) -> Result<()> {
        self.frames.take(bytes, from)
    }

    /// Forgets what was taken since the last commit, and goes on as from [`Follower::new`].
    pub fn forget(&mut self, (salt, crc): (u32, u32)) {
        self.frames = Replay::behind(salt, crc);
    }

    /// Commits what was taken, on disk when it returns, and merges if that is due (FOLLOW-2).
    ///
    /// # Errors
    /// Those of a commit. What was taken is forgotten: begin a new one where the last commit ended.
    pub fn commit(&mut self, wait: &mut Wait<'_>) -> Result<()> {
        crash_point!("follower.announced");
        let rows = self.frames.drain();
        let committed = self.write_all(rows, wait);
        if committed.is_err() {
            // Of a transaction that has failed already.
            let _ = self.conn.rollback();
        }
        committed?;
        crash_point!("follower.committed");
        // A merge that fails is tried again by whoever commits next.
        let _ = self.conn.maintain();
        Ok(())
    }

    fn write_all(&mut self, mut rows: Newest, wait: &mut Wait<'_>) -> Result<()> {
        if fault::is_planted("follower.halved")
            && let Some(middle) = rows.keys().nth(rows.len() / 2).cloned()
        {
            let second = rows.split_off(&middle);
            self.write(rows, wait)?;
            rows = second;
        }
        if fault::is_planted("follower.repeated") {
            let [first, second] = self.before.clone();
            self.before = [second.clone(), rows.clone()];
            self.write(first, wait)?;
            self.write(second, wait)?;
        }
        self.write(rows, wait)
    }

    fn write(&mut self, rows: Newest, wait: &mut Wait<'_>) -> Result<()> {
        self.conn.write_begin(WriteMode::Queued, wait)?;
        self.conn.stay_concurrent();
        for ((root, key), (is_tombstone, record)) in rows {
            match is_tombstone {
                true => self.conn.delete(root, &key, &record)?,
                false => self.conn.put(root, &key, &record, 0)?,
            }
        }
        self.conn.commit(Sync::Full, false, wait)
    }
}
