//! The WAL as a file: how frames are written, and which database it belongs to.

use super::Place::{After, Before, Replace};
use super::{Concern, Edit};

/// By concern.
pub(super) const CONCERNS: &[Concern] = &[FRAMES, WRITE_OUT, WRITTEN, FITS];

const FRAMES: Concern = Concern {
    title: "many frames in one write",
    purpose: "A concurrent database gathers frames that follow each other and writes them at once \
              (`csrc/frame.c`).",
    look_at: "`walFrames`, above all what follows its loop over pages, and `walWriteOneFrame`",
    edits: &[
        Edit {
            section: "wal.c",
            anchor: "static int walWriteOneFrame(",
            place: Before,
            text: "#include \"frame.c\" /* [plait] */",
            why: "frame.c defines what the other edits of this concern call",
        },
        Edit {
            section: "wal.c",
            anchor: "  walEncodeFrame(p->pWal, pPage->pgno, nTruncate, pData, aFrame);",
            place: After,
            text: "  if( p->pPlFrames && p->iSyncPoint==0 ) return plWriteFrame(p, aFrame, pData, iOffset); /* [plait] */",
            why: "plWriteFrame gathers the frame, in a concurrent database, up to the point where \
                  a sync is due",
        },
        Edit {
            section: "wal.c",
            anchor: "} WalWriter;",
            place: Before,
            text: "  struct PlFrames *pPlFrames;  /* [plait] where frames are gathered, or 0 */",
            why: "a writer of frames knows where they are gathered",
        },
        Edit {
            section: "wal.c",
            anchor: "  w.szPage = szPage;",
            place: After,
            text: "  w.pPlFrames = plFramesOf(pWal, szPage); /* [plait] */",
            why: "plFramesOf says where frames are gathered, if they are",
        },
        Edit {
            section: "wal.c",
            anchor: "  /* Recalculate checksums within the wal file if required. */",
            place: Before,
            text: "  rc = plFlushFrames(&w); /* [plait] */\n  if( rc ) return rc; /* [plait] */",
            why: "everything below reads the frames, syncs them or tells others of them, and so \
                  they are written first",
        },
        Edit {
            section: "wal.c",
            anchor: "    sqlite3_free((void *)pWal->apWiData);",
            place: After,
            text: "    sqlite3_free(pWal->pPlFrames); /* [plait] */",
            why: "a Wal that is closed frees the memory where frames are gathered",
        },
    ],
};

const WRITE_OUT: Concern = Concern {
    title: "writing to the disk meanwhile",
    purpose: "What a merge and a checkpoint write goes to the disk while they write it, and not \
              all at once when they sync (`csrc/writeout.c`).",
    look_at: "which writes a sync follows: `CKPT_SYNC_FLAGS` in `walCheckpoint`, `WAL_SYNC_FLAGS` \
              in `walWriteToLog`",
    edits: &[
        Edit {
            section: "wal.c",
            anchor: "struct Wal {",
            place: Before,
            text: "#include \"writeout.c\" /* [plait] */",
            why: "writeout.c defines what the other edits of this concern call",
        },
        Edit {
            section: "wal.c",
            anchor: "          rc = sqlite3OsWrite(pWal->pDbFd, zBuf, szPage, iOffset);",
            place: After,
            text: "          if( rc==SQLITE_OK && pWal->pPlMarks && CKPT_SYNC_FLAGS(sync_flags)!=0 ) rc = plWriteOut(&pWal->aPlOut[1], pWal->pPlMarks, 1, pWal->pDbFd, iOffset, szPage); /* [plait] */",
            why: "plWriteOut sends to the disk what a checkpoint writes",
        },
        Edit {
            section: "wal.c",
            anchor: "  rc = sqlite3OsWrite(p->pFd, pContent, iAmt, iOffset);",
            place: After,
            text: "  if( rc==SQLITE_OK && p->pWal->pPlMarks && WAL_SYNC_FLAGS(p->syncFlags)!=0 ) rc = plWriteOut(&p->pWal->aPlOut[0], p->pWal->pPlMarks, 0, p->pFd, iOffset, iAmt); /* [plait] */",
            why: "plWriteOut sends to the disk what a merge writes, and an exclusive transaction \
                  whose commit syncs",
        },
    ],
};

const WRITTEN: Concern = Concern {
    title: "a step for crash tests",
    purpose: "A test stops or kills a process when all frames of a transaction are written and \
              none is in the WAL-index.",
    look_at: "the order in `walFrames`: frames, sync, then the WAL-index",
    edits: &[Edit {
        section: "wal.c",
        anchor: "  assert( pLast!=0 || nExtra==0 );",
        place: Before,
        text: "  if( pWal->pPlMarks ) pl_wal_written(); /* [plait] */",
        why: "pl_wal_written is the crash point wal.written",
    }],
};

const FITS: Concern = Concern {
    title: "whether the file is that of the WAL",
    purpose: "A WAL is not brought into a database file that was put in place of its own \
              (`csrc/fits.c`).",
    look_at: "`sqlite3WalClose` and `walCheckpoint`: what happens before the first page is written",
    edits: &[
        Edit {
            section: "wal.c",
            anchor: "      rc = sqlite3WalCheckpoint(pWal, db,",
            place: Before,
            text: "      if( plClosesMisfit(pWal) ) rc = SQLITE_CANTOPEN_BKPT; else /* [plait] */",
            why: "the last connection to close removes the WAL: not if the file is another one",
        },
        Edit {
            section: "pager.c",
            anchor: "    if( db && 0==(db->flags & SQLITE_NoCkptOnClose)",
            place: Replace,
            text: "    if( db && pPager->pWal /* [plait] */ && 0==(db->flags & SQLITE_NoCkptOnClose)",
            why: "only who has a WAL to bring into the file looks whether that was moved: plBeforeClose() \
                  leaves it to others",
        },
        Edit {
            section: "wal.c",
            anchor: "        /* If the database may grow as a result of this checkpoint, hint",
            place: Before,
            text: "        if( rc==SQLITE_OK ) rc = plStillFits(pWal); /* [plait] */",
            why: "the sync has taken its time, in which another file may have been put in place of \
                  this one",
        },
    ],
};
