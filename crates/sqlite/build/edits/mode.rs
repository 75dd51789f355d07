//! The mode of a file: what its header says, and the pragma that switches it.

use super::Place::{After, Replace};
use super::{Concern, Edit};

/// By concern.
pub(super) const CONCERNS: &[Concern] = &[FENCE, JOURNAL_MODE];

const FENCE: Concern = Concern {
    title: "versions in the file's header",
    purpose: "SQLite reads a file with the versions 3/3 and our mark, which fence stock SQLite \
              out, as the WAL database that it is, and writes one with 3/2, which lets stock \
              SQLite only read.",
    look_at: "`lockBtree`, `sqlite3BtreeSetVersion`",
    edits: &[
        Edit {
            section: "btree.c",
            anchor: "    if( page1[18]>2 ){",
            place: Replace,
            text: "    if( page1[18]>2 && !PL_FENCED(page1) && !PL_RESTING_REPLICA(page1) ){ /* [plait] */",
            why: "a live concurrent file has write version 3, and so has a replica at rest, which its \
                  follower and hidden connections write; without our mark 3 is a version of the \
                  future, as to SQLite",
        },
        Edit {
            section: "btree.c",
            anchor: "    if( page1[19]>2 ){",
            place: Replace,
            text: "    if( page1[19]>2 && !PL_FENCED(page1) ){ /* [plait] */",
            why: "a live concurrent file has read version 3, which fences stock SQLite out; \
                  without our mark 3 is a version of the future, as to SQLite",
        },
        Edit {
            section: "btree.c",
            anchor: "    if( page1[19]==2 && (pBt->btsFlags & BTS_NO_WAL)==0 ){",
            place: Replace,
            text: "    if( (page1[19]==2 || page1[19]==3) && (pBt->btsFlags & BTS_NO_WAL)==0 ){ /* [plait] */",
            why: "under the fence the base still is in WAL mode",
        },
        Edit {
            section: "btree.c",
            anchor: "    if( aData[18]!=(u8)iVersion || aData[19]!=(u8)iVersion ){",
            place: Replace,
            text: "    if( plFenced(pBt) ) rc = iVersion==2 ? SQLITE_OK : SQLITE_BUSY; /* [plait] */\n    else if( aData[18]!=(u8)iVersion || aData[19]!=(u8)iVersion ){ /* [plait] */",
            why: "another connection may have made the file concurrent since this one looked, and \
                  nothing but the engine takes the fence away",
        },
        Edit {
            section: "btree.c",
            anchor: "      rc = sqlite3BtreeBeginTrans(pBtree, 2, 0);",
            place: After,
            text: "      if( rc==SQLITE_OK && iVersion==1 ) rc = plMayLeaveWal(pBt); /* [plait] */",
            why: "SQLite lets the file go between removing the WAL and this lock, and what others \
                  have committed and checkpointed meanwhile would be lost under the page 1 that it \
                  has read",
        },
    ],
};

const JOURNAL_MODE: Concern = Concern {
    title: "PRAGMA journal_mode=concurrent",
    purpose: "The pragma switches a database to concurrent mode and back, and names the mode in \
              force.",
    look_at: "the table of names in pragma.c and `PAGER_JOURNALMODE_WAL`, which is the last of \
              SQLite's numbers; OP_JournalMode",
    edits: &[
        Edit {
            section: "pragma.c",
            anchor: "     , \"wal\"",
            place: After,
            text: "     , \"concurrent\" /* [plait] */",
            why: "the new mode is number 6, right after PAGER_JOURNALMODE_WAL",
        },
        Edit {
            section: "pragma.c",
            anchor: "        if( sqlite3StrNICmp(zRight, zMode, n)==0 ) break;",
            place: Replace,
            text: "        if( sqlite3StrNICmp(zRight, zMode, n)==0 && (eMode<=PAGER_JOURNALMODE_WAL || n==10) ) break; /* [plait] */",
            why: "SQLite matches names of modes by prefix, and journal_mode=c must go on meaning \
                  nothing",
        },
        Edit {
            section: "vdbe.c",
            anchor: "  eNew = pOp->p3;",
            place: Replace,
            text: "  eNew = plJournalModeIn(p, db->aDb[pOp->p1].pBt, pOp->p3, &rc); /* [plait] */\n  if( rc ) goto abort_due_to_error; /* [plait] */",
            why: "plJournalModeIn leaves concurrent mode if asked to, and returns the mode that \
                  stock code is to set",
        },
        Edit {
            section: "vdbe.c",
            anchor: "  pOut->z = (char *)sqlite3JournalModename(eNew);",
            place: Replace,
            text: "  pOut->z = (char *)plJournalModeOut(p, pBt, pOp->p3, eNew, &rc); /* [plait] */",
            why: "plJournalModeOut enters concurrent mode if asked to, and names the mode in force",
        },
    ],
};
