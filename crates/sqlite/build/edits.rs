//! The list of edits: every line of SQLite that the spliced amalgamation changes.
//!
//! An edit names a section (the file between `Begin file X` and `End of X` banners), one
//! whole line of it, and what happens there. The line must occur exactly once in its section, or the build
//! fails and names the edit: so an upgrade of SQLite either fits or is looked at.
//!
//! Hooks (`plXxx`) are static functions of `csrc/`, declared in `dispatch.h` if called from
//! `btree.c`, else anywhere before the end of `dispatch.c`. Inserted lines end in `/* [plait] */`.
//!
//! Not in this list: the renaming of b-tree functions, which follows `csrc/alternatives.txt` and
//! `csrc/handwritten.txt` (see [`crate::wrappers`]).

mod locks;

use std::sync::LazyLock;

/// Where the new text goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Above the anchor line.
    Before,
    /// Below the anchor line.
    After,
    /// In place of the anchor line.
    Replace,
}
use Place::{After, Before, Replace};

/// One change of one line.
#[derive(Clone, Copy, Debug)]
pub struct Edit {
    /// File of SQLite that holds the line.
    pub section: &'static str,
    /// The whole line, as SQLite has it.
    pub anchor: &'static str,
    /// Where `text` goes.
    pub place: Place,
    /// One or more new lines, without the last line's end.
    pub text: &'static str,
    /// What the change is for.
    pub why: &'static str,
}

/// All edits.
pub static EDITS: LazyLock<Vec<Edit>> = LazyLock::new(|| [OF_LAYERS, locks::OF_LOCKS].concat());

/// Those of what lies above locks, by concern.
const OF_LAYERS: &[Edit] = &[
    // ---- the dispatch layer
    Edit {
        section: "btreeInt.h",
        anchor: "struct Btree {",
        place: After,
        text: "  struct PlBtree *pPl;  /* [plait] concurrent side of this handle, or 0 */\n  u8 bPlLooked;         /* [plait] the file goes with those beside it: see fits.c */\n  u8 ePlPlace;          /* [plait] PLW_x, where the file lies: see alone.c */",
        why: "hangs the concurrent state onto the handle; zeroed by sqlite3BtreeOpen",
    },
    // ---- header bytes 18 and 19
    Edit {
        section: "btree.c",
        anchor: "    if( page1[18]>2 ){",
        place: Replace,
        text: "    if( page1[18]>2 && !PL_FENCED(page1) ){ /* [plait] */",
        why: "a live concurrent file has write version 3",
    },
    Edit {
        section: "btree.c",
        anchor: "    if( page1[19]>2 ){",
        place: Replace,
        text: "    if( page1[19]>2 && !PL_FENCED(page1) ){ /* [plait] */",
        why: "and read version 3, which fences stock SQLite out. Without the mark both are what they are to SQLite: \
              versions of the future",
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
        text: "    if( PL_FENCED(aData) ) rc = iVersion==2 ? SQLITE_OK : SQLITE_BUSY; /* [plait] */\n    else if( aData[18]!=(u8)iVersion || aData[19]!=(u8)iVersion ){ /* [plait] */",
        why: "another connection may have made the file concurrent since this one looked. Nothing but the engine takes \
              the fence away",
    },
    Edit {
        section: "btree.c",
        anchor: "    rc = sqlite3PagerCommitPhaseOne(pBt->pPager, zSuperJrnl, 0);",
        place: Replace,
        text: "    rc = plPagerCommitPhaseOne(p, zSuperJrnl); /* [plait] */",
        why: "all pages are changed that the commit changes, and none is written: what one over several files prepares. \
              int plPagerCommitPhaseOne(Btree*, const char*), which falls back to the replaced call",
    },
    // ---- BEGIN CONCURRENT
    Edit {
        section: "tokenize.c",
        anchor: "    sqlite3Parser(pEngine, tokenType, pParse->sLastToken);",
        place: Before,
        text: "    if( tokenType==TK_ID && lastTokenParsed==TK_BEGIN ) tokenType = plBeginToken(zSql, n); /* [plait] */",
        why: "after BEGIN the word CONCURRENT parses as DEFERRED; elsewhere it stays an identifier. \
              int plBeginToken(const char*, i64): TK_DEFERRED or TK_ID",
    },
    Edit {
        section: "build.c",
        anchor: "  if( type!=TK_DEFERRED ){",
        place: Before,
        text: "  type = plBeginType(pParse, type); /* [plait] */",
        why: "a plain BEGIN may mean BEGIN IMMEDIATE. int plBeginType(Parse*, int type)",
    },
    Edit {
        section: "build.c",
        anchor: "  sqlite3VdbeAddOp0(v, OP_AutoCommit);",
        place: Replace,
        text: "  sqlite3VdbeAddOp3(v, OP_AutoCommit, 0, 0, type==TK_DEFERRED ? plBeginIsConcurrent(pParse) : 0); /* [plait] */",
        why: "P3 of BEGIN's opcode says what was written: 1 CONCURRENT, 2 a plain BEGIN, 0 anything else. \
              int plBeginIsConcurrent(Parse*)",
    },
    Edit {
        section: "vdbe.c",
        anchor: "    sqlite3CloseSavepoints(db);",
        place: After,
        text: "    plAutoCommitDone(db, pOp->p3); /* [plait] */",
        why: "BEGIN, COMMIT or ROLLBACK has worked. void plAutoCommitDone(sqlite3*, int how), with P3 of BEGIN",
    },
    // ---- PRAGMA journal_mode
    Edit {
        section: "pragma.c",
        anchor: "     , \"wal\"",
        place: After,
        text: "     , \"concurrent\" /* [plait] */",
        why: "mode 6, right after PAGER_JOURNALMODE_WAL",
    },
    Edit {
        section: "pragma.c",
        anchor: "        if( sqlite3StrNICmp(zRight, zMode, n)==0 ) break;",
        place: Replace,
        text: "        if( sqlite3StrNICmp(zRight, zMode, n)==0 && (eMode<=PAGER_JOURNALMODE_WAL || n==10) ) break; /* [plait] */",
        why: "SQLite matches by prefix: journal_mode=c must go on meaning nothing",
    },
    Edit {
        section: "vdbe.c",
        anchor: "  eNew = pOp->p3;",
        place: Replace,
        text: "  eNew = plJournalModeIn(p, db->aDb[pOp->p1].pBt, pOp->p3, &rc); /* [plait] */\n  if( rc ) goto abort_due_to_error; /* [plait] */",
        why: "leaves concurrent mode if asked to; returns the mode that stock code shall set. \
              int plJournalModeIn(Vdbe*, Btree*, int eAsked, int *pRc); sqlite3VdbeError for the text",
    },
    Edit {
        section: "vdbe.c",
        anchor: "  pOut->z = (char *)sqlite3JournalModename(eNew);",
        place: Replace,
        text: "  pOut->z = (char *)plJournalModeOut(p, pBt, pOp->p3, eNew, &rc); /* [plait] */",
        why: "enters concurrent mode if asked to and names the mode in force. \
              const char *plJournalModeOut(Vdbe*, Btree*, int eAsked, int eNew, int *pRc)",
    },
    // ---- COMMIT
    Edit {
        section: "vdbeaux.c",
        anchor: "    for(ii=0; sqlite3BtreeEof(pCur)==0 && ii<BTREE_FDK_RANGE; ii++){",
        place: Before,
        text: "    if( sqlite3BtreeEof(pCur) ) rc = SQLITE_DONE; /* [plait] from the first entry on */",
        why: "the search for an index entry whose expression has another value now begins where a seek has found nothing: SQLite then \
              stands on an entry, our cursor in a gap, before which there may be none",
    },
    Edit {
        section: "vdbeaux.c",
        anchor: "      rc = sqlite3PagerExclusiveLock(pPager);",
        place: Replace,
        text: "      rc = plCommitPrepare(pBt, pPager); /* [plait] */",
        why: "runs per written database before the commit hook and before any database commits. \
              int plCommitPrepare(Btree*, Pager*), which falls back to the replaced call",
    },
    // ---- COMMIT over several files
    Edit {
        section: "vdbeaux.c",
        anchor: "  rc = sqlite3VtabSync(db, p);",
        place: Replace,
        text: "  plCommitBegins(db); /* [plait] */\n  rc = sqlite3VtabSync(db, p); /* [plait] */\n  if( rc==SQLITE_OK ) rc = plTakeRights(db); /* [plait] */",
        why: "what was said of earlier failures is forgotten; then all that may wait or be refused, before rollback-mode files are locked \
              exclusively. void plCommitBegins(sqlite3*), int plTakeRights(sqlite3*)",
    },
    Edit {
        section: "vdbeaux.c",
        anchor: "  /* If there are any write-transactions at all, invoke the commit hook */",
        place: Before,
        text: "  nTrans = plFilesToCommit(db, nTrans); /* [plait] */",
        why: "concurrent files are committed by a super-journal too. int plFilesToCommit(sqlite3*, int nTrans)",
    },
    Edit {
        section: "vdbeaux.c",
        anchor: "  if( 0==sqlite3Strlen30(sqlite3BtreeGetFilename(db->aDb[0].pBt))",
        place: Replace,
        text: "  if( 0==sqlite3Strlen30(plSuperFile(db)) /* [plait] */",
        why: "it stands beside a concurrent file, also where main is in memory. const char *plSuperFile(sqlite3*)",
    },
    Edit {
        section: "vdbeaux.c",
        anchor: "    char const *zMainFile = sqlite3BtreeGetFilename(db->aDb[0].pBt);",
        place: Replace,
        text: "    char const *zMainFile = plSuperFile(db); /* [plait] */",
        why: "as above",
    },
    Edit {
        section: "vdbeaux.c",
        anchor: "        char const *zFile = sqlite3BtreeGetJournalname(pBt);",
        place: Replace,
        text: "        char const *zFile = plSuperChild(pBt); /* [plait] */",
        why: "what keeps the super-journal while a concurrent file depends on it. const char *plSuperChild(Btree*)",
    },
    Edit {
        section: "vdbeaux.c",
        anchor: "    rc = sqlite3OsDelete(pVfs, zSuper, 1);",
        place: Replace,
        text: "    rc = plDeleteSuper(db, pVfs, zSuper); /* [plait] */",
        why: "the commit point: once the name is gone nothing is rolled back. int plDeleteSuper(sqlite3*, sqlite3_vfs*, const char*)",
    },
    Edit {
        section: "vdbeaux.c",
        anchor: "          rc = vdbeCommit(db, p);",
        place: Replace,
        text: "          rc = plCommitEnded(db, p, vdbeCommit(db, p)); /* [plait] */",
        why: "what a COMMIT that failed has taken is given back. int plCommitEnded(sqlite3*, Vdbe*, int rc), which keeps the extended code of \
              SQLITE_BUSY in Vdbe.rc",
    },
    Edit {
        section: "vdbeaux.c",
        anchor: "    if( !sqlite3VtabInSync(db)",
        place: Replace,
        text: "    if( !plCommitting(db) /* [plait] */",
        why: "a busy handler or a hook runs statements in the middle of a COMMIT, which can wait. int plCommitting(sqlite3*), which runs the \
              replaced call",
    },
    Edit {
        section: "vdbeInt.h",
        anchor: "  u8 eVdbeState;          /* On of the VDBE_*_STATE values */",
        place: After,
        text: "  u8 bPlEach;             /* [plait] changes files that need not be committed together */\n  u8 bPlRead;             /* [plait] reads for a map and ends: see map_hold.c */\n  u8 bPlMiddle, bPlEnded; /* [plait] it writes; its transaction is gone: this and what follows, see whole.c */\n  u32 nPlRefused, nPlVtab, nPlInner, nPlPass, mPlTorn;  /* [plait] what was so when it began */\n  i64 nPlDefCons, nPlDefImmCons;      /* [plait] */\n  u64 iPlStatement;       /* [plait] */",
        why: "zeroed by sqlite3VdbeCreate",
    },
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
        why: "so does PRAGMA optimize",
    },
    Edit {
        section: "build.c",
        anchor: "            sqlite3RefillIndex(pParse, pIdx, -1);",
        place: After,
        text: "            if( pParse->pVdbe ) pParse->pVdbe->bPlEach = 1; /* [plait] */",
        why: "and REINDEX without a name, or with that of a collation",
    },
    Edit {
        section: "vdbeaux.c",
        anchor: "        if( rc==SQLITE_BUSY && p->readOnly ){",

        place: Replace,
        text: "        if( (rc&0xff)==SQLITE_BUSY && p->readOnly ){ /* [plait] */",
        why: "COMMIT that fails with SQLITE_BUSY_SNAPSHOT leaves the transaction open, like SQLITE_BUSY",
    },
    Edit {
        section: "vdbe.c",
        anchor: "      p->rc = rc = SQLITE_BUSY;",
        place: Replace,
        text: "      rc = SQLITE_BUSY; /* [plait] */",
        why: "COMMIT reports the extended code, which plCommitEnded() has left in p->rc",
    },
    Edit {
        section: "vdbe.c",
        anchor: "          p->rc = rc = SQLITE_BUSY;",
        place: Replace,
        text: "          rc = SQLITE_BUSY; /* [plait] */",
        why: "so does RELEASE of an outermost savepoint",
    },
    // ---- a statement happens whole or not at all (whole.c)
    Edit {
        section: "vdbe.c",
        anchor: "    if( p->usesStmtJournal",
        place: Before,
        text: "    if( pOp->p2 && pBt->pPl && (rc = plWholeBegins(p, pBt))!=SQLITE_OK ) goto abort_due_to_error; /* [plait] */",
        why: "the engine may refuse a statement after its first change, where SQLite knows of nothing that could. int plWholeBegins(Vdbe*, Btree*)",
    },
    Edit {
        section: "vdbe.c",
        anchor: "      rc = sqlite3VtabSavepoint(db, SAVEPOINT_BEGIN, p->iStatement-1);",
        place: Replace,
        text: "      rc = plVtabBegins(p); /* [plait] */",
        why: "a virtual table may write at a savepoint, and be refused. int plVtabBegins(Vdbe*), which runs the replaced call",
    },
    Edit {
        section: "vdbe.c",
        anchor: "        p->pc = (int)(pOp - aOp);",
        place: Replace,
        text: "        p->pc = plWholePaused(p, (int)(pOp - aOp)); /* [plait] */",
        why: "the application has its turn, and other statements, before this one has written. int plWholePaused(Vdbe*, int iPc)",
    },
    Edit {
        section: "vdbe.c",
        anchor: "  p->cacheCtr = (p->cacheCtr + 2)|1;",
        place: Before,
        text: "  if( p->bPlMiddle && (rc = plWholeRow(p))!=SQLITE_OK ) goto abort_due_to_error; /* [plait] */",
        why: "the same, when it has written all. int plWholeRow(Vdbe*)",
    },
    Edit {
        section: "vdbeaux.c",
        anchor: "      rc = sqlite3VdbeCloseStatement(p, eStatementOp);",
        place: Replace,
        text: "      rc = plWholeEnds(p, eStatementOp); /* [plait] */",
        why: "the end of a statement inside of a transaction. int plWholeEnds(Vdbe*, int eOp), which runs the replaced call first",
    },
    Edit {
        section: "vdbeaux.c",
        anchor: "  p->usesStmtJournal = (u8)(pParse->isMultiWrite && pParse->mayAbort);",
        place: Replace,
        text: "  p->usesStmtJournal = (u8)((pParse->isMultiWrite && pParse->mayAbort) || (pParse->writeMask & (pParse->writeMask-1))!=0); /* [plait] */",
        why: "of several files that a statement writes to, one may be refused",
    },
    Edit {
        section: "vdbe.c",
        anchor: "  if( p->expired==1 ){",
        place: Replace,
        text: "  if( p->expired==1 || p->bPlEnded ){ /* [plait] */",
        why: "a statement whose transaction was rolled back in its middle: SQLite lets it write on, outside of any transaction",
    },
    Edit {
        section: "vdbe.c",
        anchor: "    rc = pModule->xUpdate(pVtab, nArg, apArg, &rowid);",
        place: Before,
        text: "    if( p->bPlEnded ){ rc = SQLITE_ABORT_ROLLBACK; goto abort_due_to_error; } /* [plait] */\n    db->nPlInner++; /* [plait] */\n    db->nPlUpdate++; /* [plait] */",
        why: "the same; and a virtual table may remember what it is told",
    },
    Edit {
        section: "vdbe.c",
        anchor: "    rc = pModule->xUpdate(pVtab, nArg, apArg, &rowid);",
        place: After,
        text: "    db->nPlUpdate--; /* [plait] */",
        why: "a virtual table may put another code in the place of the engine's",
    },
    // ---- single writes
    Edit {
        section: "vdbeapi.c",
        anchor: "  while( (rc = sqlite3Step(v))==SQLITE_SCHEMA",
        place: Replace,
        text: "  while( (rc = plRunStatement(v))==SQLITE_SCHEMA /* [plait] */",
        why: "a single write may be tried beside others, and is run again in its turn if that fails. int plRunStatement(Vdbe*)",
    },
    Edit {
        section: "vdbeapi.c",
        anchor: "         && cnt++ < SQLITE_MAX_SCHEMA_RETRY ){",
        place: Replace,
        text: "         && cnt++ < plSchemaRetries(db) ){ /* [plait] */",
        why: "who is prepared anew waits its turn again, and may find another change of the schema as often. int plSchemaRetries(sqlite3*)",
    },
    Edit {
        section: "vdbe.c",
        anchor: "  rc = sqlite3_exec(db, pOp->p4.z, 0, 0, &zErr);",
        place: Replace,
        text: "  rc = plExecInside(p, pOp->p4.z, &zErr); /* [plait] */",
        why: "PRAGMA optimize begins by reading, and has ANALYZE run in its middle. int plExecInside(Vdbe*, const char*, char **pzErr), which \
              runs the replaced call",
    },
    // ---- new rowids
    Edit {
        section: "vdbe.c",
        anchor: "    if( !pC->useRandomRowid ){",
        place: Before,
        text: "    if( PL_CSR(pC->uc.pCursor) ){ rc = plNewRowidCandidate(pC, &v); if( rc ) goto abort_due_to_error; }else /* [plait] */",
        why: "largest visible rowid plus one, without reading the end of the table into the read set. \
              int plNewRowidCandidate(VdbeCursor*, i64*): 1 for an empty table; sets useRandomRowid past the largest integer",
    },
    Edit {
        section: "vdbe.c",
        anchor: "    if( pC->useRandomRowid ){",
        place: Before,
        text: "    if( PL_CSR(pC->uc.pCursor) ){ rc = plNewRowid(pC, pOp->p3 ? pMem : 0, &v); if( rc ) goto abort_due_to_error; } /* [plait] */",
        why: "takes a number not below the candidate from the shared counter. \
              int plNewRowid(VdbeCursor*, Mem *pSequence, i64*): also stores it in pSequence->u.i when AUTOINCREMENT gave one",
    },
    Edit {
        section: "insert.c",
        anchor: "    sqlite3OpenTable(pParse, 0, p->iDb, pDb->pSchema->pSeqTab, OP_OpenRead);",
        place: After,
        text: "    plMarkSequenceCursor(v); /* [plait] */",
        why: "void plMarkSequenceCursor(Vdbe*): OPFLAG_BULKCSR on the cursor just coded, which reaches the b-tree \
              as a hint: reads of the sequence by AUTOINCREMENT itself conflict with nobody",
    },
    Edit {
        section: "insert.c",
        anchor: "    sqlite3OpenTable(pParse, 0, p->iDb, pDb->pSchema->pSeqTab, OP_OpenWrite);",
        place: After,
        text: "    plMarkSequenceCursor(v); /* [plait] */",
        why: "and its writes become a maximum instead of a hot row",
    },
    // ---- what hooks are told
    Edit {
        section: "vdbe.c",
        anchor: "    if( (pOp->p5 & OPFLAG_SAVEPOSITION)!=0 && pC->isTable ){",
        place: Before,
        text: "    if( PL_CSR(pC->uc.pCursor) ){ rc = sqlite3VdbeCursorRestore(pC); if( rc ) goto abort_due_to_error; } /* [plait] */",
        why: "the hooks get rowid and old values from the cursor of OP_Delete. A delete from one of the table's indexes just \
              before may have made the transaction exclusive, which moves every cursor; in stock SQLite it moves none",
    },
    // ---- what a seek has read
    Edit {
        section: "vdbe.c",
        anchor: "seek_not_found:",
        place: After,
        text: "  if( PL_STEP(pC->uc.pCursor) ) plSeekLanded(pC->uc.pCursor, res==0); /* [plait] */",
        why: "OP_SeekXX found a row, or found that there is none: even if the row is never looked at, that it exists \
              has been read. void plSeekLanded(BtCursor*, int bFound)",
    },
    Edit {
        section: "vdbe.c",
        anchor: "  alreadyExists = (pC->seekResult==0);",
        place: Before,
        text: "  if( pOp->opcode==OP_NoConflict && PL_STEP(pC->uc.pCursor) ) plUniqueProbed(pC->uc.pCursor, &r); /* [plait] */",
        why: "a unique check looks at the index before it finds a NULL in the key, and then ignores what it has seen. \
              void plUniqueProbed(BtCursor*, UnpackedRecord*)",
    },
    Edit {
        section: "fts5.c",
        anchor: "  if( fts5IndexDataVersion(p)!=p->iStructVersion ){",
        place: Replace,
        text: "  if( fts5IndexDataVersion(p)!=p->iStructVersion || plNotesReads(p->pConfig->db, p->pConfig->zDb) ){ /* [plait] */",
        why: "FTS5 keeps the list of its segments across transactions as long as data_version stays: a transaction that \
              searches must have read it. int plNotesReads(sqlite3*, const char *zDb)",
    },
    // ---- the key-value API
    Edit {
        section: "vdbeblob.c",
        anchor: "#endif /* #ifndef SQLITE_OMIT_INCRBLOB */",
        place: After,
        text: "#include \"map.c\" /* [plait] */",
        why: "maps are built like incremental blob handles: they see what the machine's own API files see, \
              and call what later ones define",
    },
    Edit {
        section: "sqliteInt.h",
        anchor: "  struct Vdbe *pVdbe;           /* List of active virtual machines */",
        place: After,
        text: "  struct plait_map *pPlSeen;    /* [plait] maps that go on reading where they are: see map_hold.c */\n  u64 iPlStatement;             /* [plait] the last that was given out: this and what follows, see whole.c */\n  u32 nPlRefused, nPlVtab, nPlInner;  /* [plait] refusals, those to virtual tables, and statements inside of others, so far */\n  u8 aPlRefused[8];             /* [plait] the codes of the last refusals */\n  u32 nPlUpdate;                /* [plait] virtual tables that write now */\n  u32 mPlTorn;                  /* [plait] files of which the open transaction cannot be committed */\n  u8 bPlTaken;                  /* [plait] a statement is taken back without SQLite's journal */\n  u8 bPlCommitting;             /* [plait] a COMMIT is under way: see several.c */\n  struct Vdbe *pPlFirst;        /* [plait] a statement that runs, perhaps the first of a plain BEGIN: see begin.c */\n  u64 iPlFirst;                 /* [plait] and its hash, once it has read; until the transaction ends */\n  u8 ePlBegin;                  /* [plait] PL_BEGIN_x of PRAGMA plait_begin; 0: not said */",
        why: "zeroed when a connection is opened. PL_LET_GO(sqlite3*) ends that for all of them, and costs a look where there are none",
    },
    Edit {
        section: "vdbeapi.c",
        anchor: "      if( db->nVdbeActive==0 ){",
        place: Before,
        text: "      if( !p->bPlRead ) PL_LET_GO(db); /* [plait] */",
        why: "a statement begins",
    },
    Edit {
        section: "btree.c",
        anchor: "static void btreeEndTransaction(Btree *p){",
        place: After,
        text: "  PL_LET_GO(p->db); /* [plait] */",
        why: "a transaction ends, by whatever way: no cursor outlives it",
    },
    Edit {
        section: "backup.c",
        anchor: "  rc = p->rc;",
        place: Before,
        text: "  PL_LET_GO(p->pSrcDb); /* [plait] */\n  if( p->pDestDb ) PL_LET_GO(p->pDestDb); /* [plait] */",
        why: "a backup steps, which begins no statement: it may write over the pages of one database and make the other exclusive",
    },
    Edit {
        section: "main.c",
        anchor: "  for(i=0; rc==SQLITE_OK && i<db->nDb; i++){",
        place: Before,
        text: "  PL_LET_GO(db); /* [plait] */",
        why: "sqlite3_db_cacheflush() leaves out pages that are in use",
    },
    Edit {
        section: "btree.c",
        anchor: "    idx = upr>>(1-biasRight); /* idx = biasRight ? upr : (lwr+upr)/2; */",
        place: Replace,
        text: "    idx = biasRight ? upr : plFirstLook(pCur, pPage, intKey, upr); /* [plait] */",
        why: "on a leaf without holes a search begins where the row is. The loop below finds it from any cell. \
              int plFirstLook(BtCursor*, MemPage*, i64, int upr): 0..upr",
    },
    Edit {
        section: "btree.c",
        anchor: "      int nCell;  /* Size of the pCell cell in bytes */",
        place: After,
        text: "      plFetchNext(pPage, lwr, idx, upr); /* [plait] */",
        why: "of the two cells that come next one is needed, from memory. \
              void plFetchNext(const MemPage*, int lwr, int idx, int upr)",
    },
    Edit {
        section: "vdbeaux.c",
        anchor: "    testcase( flags & MEM_Blob );",
        place: After,
        text: "    if( (flags & (MEM_Real|MEM_IntReal|MEM_Null|MEM_Str|MEM_Zero))==0 ) return plFindCompareBlob(p); /* [plait] */",
        why: "a comparison for keys that begin with bytes, as SQLite has them for integers and for text. \
              RecordCompare plFindCompareBlob(UnpackedRecord*)",
    },
    // ---- code that looks at the file page by page
    Edit {
        section: "btree.h",
        anchor: "SQLITE_PRIVATE void sqlite3BtreeClearCache(Btree*);",
        place: After,
        text: "SQLITE_PRIVATE void plSerializedHeader(u8*); /* [plait] */\nSQLITE_PRIVATE void plSerialize(Btree*, int bCopy); /* [plait] */\nSQLITE_PRIVATE int plPagerCommitPhaseOne(Btree*, const char*); /* [plait] */",
        why: "memdb.c, which uses two of them, comes before btree.c, and btree.c before what follows it",
    },
    Edit {
        section: "memdb.c",
        anchor: "  if( rc ) goto serialize_out;",
        place: After,
        text: "  plSerialize(pBt, 1); /* [plait] */",
        why: "what page_count is asked for here is the size of a copy. It is taken back in any case at the end",
    },
    Edit {
        section: "memdb.c",
        anchor: " serialize_out:",
        place: After,
        text: "  if( iDb>=0 && db->aDb[iDb].pBt ) plSerialize(db->aDb[iDb].pBt, 0); /* [plait] */",
        why: "as above",
    },
    Edit {
        section: "memdb.c",
        anchor: "            memcpy(pTo, sqlite3PagerGetData(pPage), szPage);",
        place: After,
        text: "            if( pgno==1 ) plSerializedHeader(pTo); /* [plait] */",
        why: "sqlite3_serialize gives a plain database that sqlite3_deserialize takes",
    },
    Edit {
        section: "vdbe.c",
        anchor: "  pOut->u.i = sqlite3BtreeLastPage(db->aDb[pOp->p1].pBt);",
        place: Before,
        text: "  rc = plWholeView(db->aDb[pOp->p1].pBt, PLV_COUNT); /* [plait] */\n  if( rc ) goto abort_due_to_error; /* [plait] */",
        why: "PRAGMA page_count counts pages of the base; sqlite3_serialize, by way of it, at everything. int plWholeView(Btree*, int eView)",
    },
    Edit {
        section: "vdbe.c",
        anchor: "    newMax = sqlite3BtreeLastPage(pBt);",
        place: Before,
        text: "    rc = plWholeView(pBt, PLV_LOOK); /* [plait] */\n    if( rc ) goto abort_due_to_error; /* [plait] */",
        why: "PRAGMA max_page_count is never less than the size",
    },
    Edit {
        section: "dbpage.c",
        anchor: "  pCsr->mxPgno = sqlite3BtreeLastPage(pBt);",
        place: Before,
        text: "  rc = plWholeView(pBt, PLV_PAGES); /* [plait] */\n  if( rc ) return rc; /* [plait] */",
        why: "so does sqlite_dbpage",
    },
    Edit {
        section: "dbstat.c",
        anchor: "    pCsr->iPage = -1;",
        place: After,
        text: "    rc = plStatLook(pTab->db, pCsr->iDb); /* [plait] */\n    if( rc ) return rc; /* [plait] */",
        why: "and dbstat, before it reads the schema for the roots of the pages. int plStatLook(sqlite3*, int iDb)",
    },
    Edit {
        section: "vdbe.c",
        anchor: "    p->expired = 1;",
        place: Before,
        text: "    plStatementStale(pBt); /* [plait] */",
        why: "a statement that began in a snapshot has read in it, unless it is to be prepared again. void plStatementStale(Btree*)",
    },
    Edit {
        section: "backup.c",
        anchor: "    if( p->pDestDb && p->pSrc->pBt->inTransaction==TRANS_WRITE ){",
        place: Replace,
        text: "    if( p->pDestDb && p->pSrc->pBt->inTransaction==TRANS_WRITE && !plOnlyCopies(p->pSrc) ){ /* [plait] */",
        why: "a transaction that is exclusive because of a backup, and writes nothing, does not hinder its steps. \
              int plOnlyCopies(Btree*)",
    },
    Edit {
        section: "backup.c",
        anchor: "     && SQLITE_OK==(rc = sqlite3BtreeBeginTrans(pDest, 2,",
        place: Replace,
        text: "     && SQLITE_OK==(rc = plBeginPages(pDest, /* [plait] */",
        why: "whose destination is written page by page. int plBeginPages(Btree*, int *pSchemaVersion)",
    },
    Edit {
        section: "backup.c",
        anchor: "    nSrcPage = (int)sqlite3BtreeLastPage(p->pSrc);",
        place: Replace,
        text: "    nSrcPage = plBackupPages(p->pSrc, p->iNext, &nPage, &rc); /* [plait] */",
        why: "and a backup. int plBackupPages(Btree*, Pgno iNext, int *pnPage, int *pRc)",
    },
    Edit {
        section: "backup.c",
        anchor: "      ((u8 *)sqlite3PagerGetExtra(pDestPg))[0] = 0;",
        place: After,
        text: "      if( iOff==0 && p->pDestDb!=0 ) plBackupHeader(zOut); /* [plait] */",
        why: "a backup is a plain file; pDestDb is 0 when VACUUM copies its result back. \
              void plBackupHeader(u8 *aPage1)",
    },
    // ---- what the application is told
    Edit {
        section: "vdbe.c",
        anchor: "    sqlite3VdbeError(p, \"%s\", sqlite3ErrStr(rc));",
        place: Replace,
        text: "    sqlite3VdbeError(p, \"%s\", plErrStr(db, rc)); /* [plait] */",
        why: "a statement that failed in the engine says why. const char *plErrStr(sqlite3*, int rc), \
              which falls back to sqlite3ErrStr",
    },
    Edit {
        section: "main.c",
        anchor: "      z = sqlite3ErrStr(db->errCode);",
        place: Replace,
        text: "      z = plErrStr(db, db->errCode); /* [plait] */",
        why: "so does sqlite3_errmsg after COMMIT, which keeps no text of its own",
    },
    Edit {
        section: "main.c",
        anchor: "      sqlite3ErrorWithMsg(db, db->errCode, sqlite3ErrStr(db->errCode));",
        place: Replace,
        text: "      sqlite3ErrorWithMsg(db, db->errCode, \"%s\", plErrStr(db, db->errCode)); /* [plait] */",
        why: "and sqlite3_errmsg16",
    },
    Edit {
        section: "prepare.c",
        anchor: "      sqlite3SetString(pzErrMsg, db, sqlite3ErrStr(rc));",
        place: Replace,
        text: "      sqlite3SetString(pzErrMsg, db, plErrStr(db, rc)); /* [plait] */",
        why: "the first statement on a file opens it, which may fail on a missing or foreign log",
    },
    Edit {
        section: "main.c",
        anchor: "      *(unsigned int*)pArg = sqlite3PagerDataVersion(pPager);",
        place: Replace,
        text: "      rc = plDataVersion(pBtree, pPager, (unsigned int*)pArg); /* [plait] */\n      if( rc==SQLITE_OK ) /* [plait] */",
        why: "SQLITE_FCNTL_DATA_VERSION sees commits that are not merged; the next line sets rc to SQLITE_OK. \
              int plDataVersion(Btree*, Pager*, u32*), which falls back to the replaced call",
    },
    Edit {
        section: "vdbe.c",
        anchor: "  sqlite3BtreeGetMeta(db->aDb[iDb].pBt, iCookie, (u32 *)&iMeta);",
        place: Replace,
        text: "  rc = plReadMeta(db->aDb[iDb].pBt, iCookie, (u32 *)&iMeta); /* [plait] */\n  if( rc ) goto abort_due_to_error; /* [plait] */",
        why: "so does PRAGMA data_version. int plReadMeta(Btree*, int idx, u32*), which falls back to the replaced call",
    },
    Edit {
        section: "func.c",
        anchor: "  sqlite3RegisterDateTimeFunctions();",
        place: After,
        text: "  plRegisterFunctions(); /* [plait] */",
        why: "SQL functions, once for all connections. void plRegisterFunctions(void)",
    },
    Edit {
        section: "build.c",
        anchor: "      if( pMod==0 && sqlite3_strnicmp(zName, \"pragma_\", 7)==0 ){",
        place: Before,
        text: "      if( pMod==0 && sqlite3_strnicmp(zName, \"plait_\", 6)==0 ) pMod = plTableRegister(db, zName); /* [plait] */",
        why: "virtual tables, when a connection first asks for one. Module *plTableRegister(sqlite3*, const char*)",
    },
    Edit {
        section: "main.c",
        anchor: "static int (*const sqlite3BuiltinExtensions[])(sqlite3*) = {",
        place: After,
        text: "  plOpened, /* [plait] */",
        why: "the report of what a program opens. int plOpened(sqlite3*)",
    },
    Edit {
        section: "main.c",
        anchor: "    sqlite3AutoLoadExtensions(db);",
        place: Replace,
        text: "    if( (db->openFlags & PL_OPEN_BASE)==0 ) sqlite3AutoLoadExtensions(db); /* [plait] */",
        why: "an application's automatic extensions are for the connections that it opens: on a hidden one, which is opened while \
              its database is, their SQL would wait for that opening, and their refusal would end it",
    },
    Edit {
        section: "pragma.c",
        anchor: "  rc = sqlite3_file_control(db, zDb, SQLITE_FCNTL_PRAGMA, (void*)aFcntl);",
        place: Replace,
        text: "  rc = plPragma(db, zDb, aFcntl); /* [plait] */",
        why: "PRAGMA plait_...; int plPragma(sqlite3*, const char *zDb, char **aFcntl) with the contract of \
              SQLITE_FCNTL_PRAGMA (aFcntl[1] name, [2] argument, [0] result), which falls back to the replaced call",
    },
    Edit {
        section: "pragma.c",
        anchor: "    returnSingleText(v, aFcntl[0]);",
        place: Replace,
        text: "    if( aFcntl[3] ) returnSingleInt(v, plPragmaNumber(aFcntl[3])); /* [plait] */\n    else returnSingleText(v, aFcntl[0]); /* [plait] */",
        why: "numbers are integers, as those of other pragmas; i64 plPragmaNumber(const char*) of the result where \
              plPragma has said by aFcntl[3], which SQLite leaves 0, that it is one",
    },
];
