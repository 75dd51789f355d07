/*
** map_single.c - a read of a map that is a transaction of its own, without a statement.
**
** Outside of BEGIN a read begins a transaction, reads, and ends it. The machine does much around
** that which only other statements need: it opens cursors in memory of their own, and looks for
** something to commit, for savepoints and for statements that go on. Where none of these can be,
** the read calls the b-tree directly for three things: it begins as every statement does (pins,
** waits, looks at the file, notices that the mark is gone), reads, and ends like every statement
** (settles what was shown, maintains).
**
** Invariants
**  - SINGLE-1 It runs in autocommit, while no statement of the connection is active, on a member of
**    a concurrent database whose handle is not shared: so the transaction begins and ends here, and
**    no other part of the connection sees it.
**  - SINGLE-2 As HOLD-2 of map_hold.c: no code of the application runs in it. With a custom busy
**    handler the read is a statement.
**  - SINGLE-3 As HOLD-3: an attempt that does not simply succeed has changed nothing, and is
**    repeated as a statement. Causes are a changed schema (KV-1), an interrupt, and a lock, for
**    which only the statement waits.
*/

/* True if the schema that the program was made from is the file's (KV-1). */
static SQLITE_INLINE int plSameSchema(PlProg *g, int iCookie){
  return g->iCookie==iCookie && g->iGeneration==g->pMap->db->aDb[g->iDb].pSchema->iGeneration;
}

/* Reads in a transaction of its own. False: it has to be a statement (SINGLE-3). */
static int plMapSingle(plait_map *m, PlOp *pOp){
  sqlite3 *db = m->db;
  PlProg *g = &m->aProg[PLP_READ];
  Btree *pBt;
  int iCookie = 0, eNext = PLM_DONE, bDone = 0, rc;
  if( !pOp->bShort || !db->autoCommit || db->nVdbeActive>0 || g->v==0 || g->v->expired || !g->s.bBinary ) return 0;
  pBt = db->aDb[g->iDb].pBt;      /* now: DETACH expires the program, and the array may be shorter */
  if( pBt==0 || !PL_BT(pBt) || pBt->inTrans!=TRANS_NONE || pBt->sharable ) return 0;
  if( db->xProgress || AtomicLoad(&db->u1.isInterrupted) || plAsksHandler(db) ) return 0;
  pBt->pPl->bNoWait = 1;
  rc = sqlite3BtreeBeginTrans(pBt, 0, &iCookie);
  pBt->pPl->bNoWait = 0;
  if( rc ) return 0;
  if( plSameSchema(g, iCookie) && plHeldOpen(m, pBt)==SQLITE_OK ){
    memcpy(g->apCsr, m->apHeld, sizeof(g->apCsr));
    bDone = pOp->xDo(pOp, &eNext)==SQLITE_OK && eNext==PLM_DONE && plHeldSound(pBt) && !db->mallocFailed;
    plHeldClose(m);
  }
  if( sqlite3BtreeCommit(pBt)!=SQLITE_OK ){
    (void)sqlite3BtreeRollback(pBt, SQLITE_OK, 0);
    bDone = 0;
  }
  if( bDone ){
    sqlite3Error(db, SQLITE_OK);
    return 1;
  }
  plOpAgain(pOp);
  return 0;
}
