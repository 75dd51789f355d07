/*
** map_single.c - a read of a map that is a transaction of its own, without a statement.
**
** Outside of BEGIN a read begins a transaction, reads, and ends it. Around that the machine has much to do that only others need: it
** opens cursors in memory of their own, looks for what is to be committed, for savepoints and for statements that go on. Where nothing of
** that can be, the b-tree is asked for the same three things directly: it begins as for every statement (pins, waits, looks at the
** file, finds the file's mark gone), and ends as after every one (settles what was shown, maintains).
**
** Invariants
**  - SINGLE-1 It is done in autocommit, while no statement of the connection is active, for a member of a concurrent database whose handle nobody
**    shares: so the transaction begins and ends here, and nothing else of the connection sees it.
**  - SINGLE-2 As HOLD-2 of map_hold.c: nothing of the application's runs meanwhile. With a busy handler of the application's it is a statement.
**  - SINGLE-3 As HOLD-3: what does not simply succeed has changed nothing, and is done once more as a statement. Among it are a schema that has changed
**    (KV-1), an interrupt, and a lock that somebody has, for which only the statement waits.
*/

/* The schema that the program was made from is the file's (KV-1). */
static SQLITE_INLINE int plSameSchema(PlProg *g, int iCookie){
  return g->iCookie==iCookie && g->iGeneration==g->pMap->db->aDb[g->iDb].pSchema->iGeneration;
}

/* Reads in a transaction of its own. False: it has to be a statement (SINGLE-3). */
static int plMapSingle(plait_map *m, PlOp *pOp){
  sqlite3 *db = m->db;
  PlProg *g = &m->aProg[PLP_READ];
  Btree *pBt = db->aDb[g->iDb].pBt;
  int iCookie = 0, eNext = PLM_DONE, bDone = 0, rc;
  if( !pOp->bShort || !db->autoCommit || db->nVdbeActive>0 || g->v==0 || g->v->expired || !g->s.bBinary ) return 0;
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
  sqlite3_free(pOp->zErr);
  pOp->zErr = 0;
  plOpClear(pOp);
  return 0;
}
