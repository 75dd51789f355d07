//! COMMIT: of one file, of several, and of statements whose files go one by one.

use super::Place::{After, Before, Replace};
use super::{Concern, Edit};

/// By concern.
pub(super) const CONCERNS: &[Concern] = &[COMMIT, SEVERAL_FILES, EACH_FILE];

const COMMIT: Concern = Concern {
    title: "COMMIT",
    purpose: "The engine checks a COMMIT before the commit hook runs, and a COMMIT that it refuses \
              leaves the transaction open with the extended code.",
    look_at: "`vdbeCommit`, `sqlite3VdbeHalt`, OP_AutoCommit, OP_Savepoint; code 517 is in \
              `Vdbe.rc` by then (`plCommitEnded`)",
    edits: &[
        Edit {
            section: "vdbeaux.c",
            anchor: "  rc = sqlite3VtabSync(db, p);",
            place: Replace,
            text: "  if( PL_MET(db) ) plCommitBegins(db); /* [plait] */\n  rc = sqlite3VtabSync(db, p); /* [plait] */\n  if( PL_MET(db) && rc==SQLITE_OK ) rc = plTakeRights(db); /* [plait] */",
            why: "COMMIT forgets what was said of earlier failures; plTakeRights then does all \
                  that may wait or be refused, before SQLite locks files in rollback mode \
                  exclusively",
        },
        Edit {
            section: "vdbeaux.c",
            anchor: "    if( !sqlite3VtabInSync(db)",
            place: Replace,
            text: "    if( !plCommitting(db) /* [plait] */",
            why: "plCommitting runs the replaced call: a busy handler or a hook runs statements in \
                  the middle of a COMMIT, which can wait",
        },
        Edit {
            section: "vdbeaux.c",
            anchor: "      rc = sqlite3PagerExclusiveLock(pPager);",
            place: Replace,
            text: "      rc = PL_BT(pBt) ? plCommitPrepare(pBt) : sqlite3PagerExclusiveLock(pPager); /* [plait] */",
            why: "plCommitPrepare checks each written database before the commit hook runs and \
                  before any database commits",
        },
        Edit {
            section: "vdbeaux.c",
            anchor: "          rc = vdbeCommit(db, p);",
            place: Replace,
            text: "          rc = vdbeCommit(db, p); /* [plait] */\n          if( PL_UNLIKELY(rc!=SQLITE_OK) || PL_MET(db) ) rc = plCommitEnded(db, p, rc); /* [plait] */",
            why: "plCommitEnded gives back what a COMMIT that failed has taken, and keeps the \
                  extended code of SQLITE_BUSY in Vdbe.rc",
        },
        Edit {
            section: "vdbeaux.c",
            anchor: "        if( rc==SQLITE_BUSY && p->readOnly ){",
            place: Replace,
            text: "        if( (rc&0xff)==SQLITE_BUSY && p->readOnly ){ /* [plait] */",
            why: "a COMMIT that fails with SQLITE_BUSY_SNAPSHOT leaves the transaction open, as \
                  one that fails with SQLITE_BUSY does",
        },
        Edit {
            section: "vdbe.c",
            anchor: "      p->rc = rc = SQLITE_BUSY;",
            place: Replace,
            text: "      rc = SQLITE_BUSY; /* [plait] */",
            why: "COMMIT reports the extended code that plCommitEnded has left in Vdbe.rc",
        },
        Edit {
            section: "vdbe.c",
            anchor: "          p->rc = rc = SQLITE_BUSY;",
            place: Replace,
            text: "          rc = SQLITE_BUSY; /* [plait] */",
            why: "RELEASE of an outermost savepoint reports the extended code that plCommitEnded \
                  has left in Vdbe.rc",
        },
    ],
};

const SEVERAL_FILES: Concern = Concern {
    title: "COMMIT over several files",
    purpose: "A transaction that has changed a concurrent file and another one commits both by a \
              super-journal, or neither.",
    look_at: "`vdbeCommit` from the count of its files on: who makes, names, fills and deletes the \
              super-journal; `sqlite3BtreeCommitPhaseOne`",
    edits: &[
        Edit {
            section: "vdbeaux.c",
            anchor: "  /* If there are any write-transactions at all, invoke the commit hook */",
            place: Before,
            text: "  nTrans = plFilesToCommit(db, nTrans); /* [plait] */",
            why: "plFilesToCommit counts concurrent files, so that they too are committed by a \
                  super-journal",
        },
        Edit {
            section: "vdbeaux.c",
            anchor: "  if( 0==sqlite3Strlen30(sqlite3BtreeGetFilename(db->aDb[0].pBt))",
            place: Replace,
            text: "  if( 0==sqlite3Strlen30(plSuperFile(db)) /* [plait] */",
            why: "plSuperFile lets a concurrent file have the super-journal beside it, also where \
                  main is in memory",
        },
        Edit {
            section: "vdbeaux.c",
            anchor: "    char const *zMainFile = sqlite3BtreeGetFilename(db->aDb[0].pBt);",
            place: Replace,
            text: "    char const *zMainFile = plSuperFile(db); /* [plait] */",
            why: "the super-journal is named after the file that plSuperFile has chosen",
        },
        Edit {
            section: "vdbeaux.c",
            anchor: "        char const *zFile = sqlite3BtreeGetJournalname(pBt);",
            place: Replace,
            text: "        char const *zFile = plSuperChild(pBt); /* [plait] */",
            why: "plSuperChild lists in the super-journal what keeps it while a concurrent file \
                  depends on it",
        },
        Edit {
            section: "vdbeaux.c",
            anchor: "    rc = sqlite3OsDelete(pVfs, zSuper, 1);",
            place: Replace,
            text: "    rc = plDeleteSuper(db, pVfs, zSuper); /* [plait] */",
            why: "to delete the super-journal commits: once its name is gone plDeleteSuper lets \
                  nothing be rolled back",
        },
        Edit {
            section: "btree.c",
            anchor: "    rc = sqlite3PagerCommitPhaseOne(pBt->pPager, zSuperJrnl, 0);",
            place: Replace,
            text: "    rc = plPagerCommitPhaseOne(p, zSuperJrnl); /* [plait] */",
            why: "an exclusive transaction prepares its pages here, when it has changed them all \
                  and has written none; plPagerCommitPhaseOne falls back to the replaced call",
        },
    ],
};

const EACH_FILE: Concern = Concern {
    title: "statements whose files go one by one",
    purpose: "ANALYZE, PRAGMA optimize and REINDEX go over all files of a connection, and each \
              file may be committed without the others.",
    look_at: "whether other statements go over all files",
    edits: &[
        Edit {
            section: "analyze.c",
            anchor: "  assert( pName2!=0 || pName1==0 );",
            place: After,
            text: "  if( sqlite3GetVdbe(pParse) ) pParse->pVdbe->bPlEach = 1; /* [plait] */",
            why: "ANALYZE without a name goes over all files",
        },
        Edit {
            section: "pragma.c",
            anchor: "          sqlite3VdbeAddOp4(v, OP_SqlExec, nLimit ? 0x02 : 00, nLimit, 0,",
            place: Before,
            text: "          v->bPlEach = 1; /* [plait] */",
            why: "PRAGMA optimize goes over all files",
        },
        Edit {
            section: "build.c",
            anchor: "            sqlite3RefillIndex(pParse, pIdx, -1);",
            place: After,
            text: "            if( pParse->pVdbe ) pParse->pVdbe->bPlEach = 1; /* [plait] */",
            why: "REINDEX without a name, or with that of a collation, goes over all files",
        },
    ],
};
