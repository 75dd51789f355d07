//! Code of SQLite that looks at the file page by page.

use super::Place::{After, Before, Replace};
use super::{Concern, Edit};

/// By concern.
pub(super) const CONCERNS: &[Concern] = &[LOOKS, SERIALIZE, BACKUP];

const LOOKS: Concern = Concern {
    title: "looks at pages",
    purpose: "Code that counts or reads pages says so first, and a transaction then sees all its \
              rows in them.",
    look_at: "OP_Pagecount, OP_MaxPgcnt, `dbpageFilter`, dbstat's `statFilter`; new callers of \
              `sqlite3BtreeLastPage`",
    edits: &[
        Edit {
            section: "vdbe.c",
            anchor: "  pOut->u.i = sqlite3BtreeLastPage(db->aDb[pOp->p1].pBt);",
            place: Before,
            text: "  rc = plWholeView(db->aDb[pOp->p1].pBt, PLV_COUNT); /* [plait] */\n  if( rc ) goto abort_due_to_error; /* [plait] */",
            why: "PRAGMA page_count counts pages of the base; by way of it sqlite3_serialize looks \
                  at everything",
        },
        Edit {
            section: "vdbe.c",
            anchor: "    newMax = sqlite3BtreeLastPage(pBt);",
            place: Before,
            text: "    rc = plWholeView(pBt, PLV_LOOK); /* [plait] */\n    if( rc ) goto abort_due_to_error; /* [plait] */",
            why: "PRAGMA max_page_count is never less than the size of the file",
        },
        Edit {
            section: "dbpage.c",
            anchor: "  pCsr->mxPgno = sqlite3BtreeLastPage(pBt);",
            place: Before,
            text: "  rc = plWholeView(pBt, PLV_PAGES); /* [plait] */\n  if( rc ) return rc; /* [plait] */",
            why: "sqlite_dbpage reads pages of the base",
        },
        Edit {
            section: "dbstat.c",
            anchor: "    pCsr->iPage = -1;",
            place: After,
            text: "    rc = plStatLook(pTab->db, pCsr->iDb); /* [plait] */\n    if( rc ) return rc; /* [plait] */",
            why: "dbstat reads pages of the base, and before that the schema for their roots",
        },
        Edit {
            section: "vdbe.c",
            anchor: "    p->expired = 1;",
            place: Before,
            text: "    plStatementStale(pBt); /* [plait] */",
            why: "plStatementStale lets a statement that is to be prepared again count as one that \
                  has read nothing; any other has read in its snapshot",
        },
    ],
};

const SERIALIZE: Concern = Concern {
    title: "serializations",
    purpose: "A serialization holds everything, and its page 1 is that of a plain database.",
    look_at: "`sqlite3_serialize`",
    edits: &[
        Edit {
            section: "btree.h",
            anchor: "SQLITE_PRIVATE void sqlite3BtreeClearCache(Btree*);",
            place: After,
            text: "SQLITE_PRIVATE void plSerializedHeader(u8*); /* [plait] */\nSQLITE_PRIVATE void plSerialize(Btree*, int bCopy); /* [plait] */\nSQLITE_PRIVATE int plPagerCommitPhaseOne(Btree*, const char*); /* [plait] */",
            why: "memdb.c, which uses two of these functions, comes before btree.c, and btree.c, \
                  which uses the third, before what defines it",
        },
        Edit {
            section: "memdb.c",
            anchor: "  if( rc ) goto serialize_out;",
            place: After,
            text: "  plSerialize(pBt, 1); /* [plait] */",
            why: "what sqlite3_serialize asks page_count for is the size of a copy",
        },
        Edit {
            section: "memdb.c",
            anchor: " serialize_out:",
            place: After,
            text: "  if( iDb>=0 && db->aDb[iDb].pBt ) plSerialize(db->aDb[iDb].pBt, 0); /* [plait] */",
            why: "the end of sqlite3_serialize, whatever its result, takes back that page_count is \
                  of a copy",
        },
        Edit {
            section: "memdb.c",
            anchor: "            memcpy(pTo, sqlite3PagerGetData(pPage), szPage);",
            place: After,
            text: "            if( pgno==1 ) plSerializedHeader(pTo); /* [plait] */",
            why: "sqlite3_serialize gives a plain database that sqlite3_deserialize takes",
        },
    ],
};

const BACKUP: Concern = Concern {
    title: "backups",
    purpose: "A backup copies everything that is committed when it ends, and makes a plain file.",
    look_at: "`sqlite3_backup_step`: what it asks of its source and its destination; page 1 of a \
              backup, and when it is at its end",
    edits: &[
        Edit {
            section: "backup.c",
            anchor: "    if( p->pDestDb && p->pSrc->pBt->inTransaction==TRANS_WRITE ){",
            place: Replace,
            text: "    if( p->pDestDb && p->pSrc->pBt->inTransaction==TRANS_WRITE && !plOnlyCopies(p->pSrc) ){ /* [plait] */",
            why: "a transaction that is exclusive because of a backup, and writes nothing, does \
                  not hinder its steps",
        },
        Edit {
            section: "backup.c",
            anchor: "     && SQLITE_OK==(rc = sqlite3BtreeBeginTrans(pDest, 2,",
            place: Replace,
            text: "     && SQLITE_OK==(rc = plBeginPages(pDest, /* [plait] */",
            why: "plBeginPages says that the transaction of the destination writes page by page",
        },
        Edit {
            section: "backup.c",
            anchor: "    nSrcPage = (int)sqlite3BtreeLastPage(p->pSrc);",
            place: Replace,
            text: "    nSrcPage = plBackupPages(p->pSrc, p->iNext, &nPage, &rc); /* [plait] */",
            why: "plBackupPages brings everything into the base before the first step and the last",
        },
        Edit {
            section: "backup.c",
            anchor: "      ((u8 *)sqlite3PagerGetExtra(pDestPg))[0] = 0;",
            place: After,
            text: "      if( iOff==0 && p->pDestDb!=0 ) plBackupHeader(zOut); /* [plait] */",
            why: "a backup is a plain file; pDestDb is 0 when VACUUM copies its result back",
        },
    ],
};
