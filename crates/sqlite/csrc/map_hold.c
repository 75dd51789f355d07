/*
** map_hold.c - a read goes on where the last one was.
**
** Most of a statement is its beginning and its end. Between BEGIN and COMMIT reads of a map follow
** each other, and what the first has found out holds for the next: the transaction is open, and its
** schema is the one that the program was made from. So the second read opens cursors that are the
** map's own, and from then on a read seeks with them: no statement begins or ends.
**
**     plait_map.eHold   PLK_NONE  nothing is known
**                       PLK_SEEN  a read has run as a statement. In sqlite3.pPlSeen
**                       PLK_OPEN  the cursors are open too
**
** eHold returns to PLK_NONE (plMapLetGo()) when any statement of the connection begins but a map's
** own read, when a transaction ends on any of its databases, when a backup steps, when pages are
** flushed, when a PRAGMA is compiled, and when the map is closed or its program made anew.
**
** Invariants
**  - HOLD-1 eHold!=PLK_NONE implies that BEGIN has run, that the map's database has a transaction,
**    and that no statement of the connection is active but at most a map's own read. The cursors
**    count as no statement: code that looks for active statements (COMMIT, VACUUM,
**    sqlite3_create_function(), sqlite3_snapshot_open()) finds what it would find without them.
**  - HOLD-2 No code of the application runs in such a read: no collation (PlShape.bBinary), no
**    progress handler. The handles of a shared cache, which are locked by statements, are not held.
**    So no overlay comes over a b-tree of the base, and no snapshot moves, while cursors are held:
**    PlCursor.bHeld.
**  - HOLD-3 A read that does not simply succeed is repeated as a statement: then an expired program
**    is made anew, an interrupt counts or does not, an I/O error rolls back, and the text is the
**    statement's, as always.
*/

static void plHeldClose(plait_map *m){
  int i;
  if( m->eHold==PLK_OPEN ){
    for(i=0; i<m->aProg[PLP_READ].nCsr; i++) sqlite3BtreeCloseCursor(m->apHeld[i]);
  }
  m->eHold = PLK_NONE;
}

static void plMapLetGo(sqlite3 *db){
  plait_map *m;
  while( (m = db->pPlSeen)!=0 ){
    db->pPlSeen = m->pNextSeen;
    plHeldClose(m);
  }
}

/* A read has run as a statement, which has ended. */
static void plMapSeen(plait_map *m){
  sqlite3 *db = m->db;
  PlProg *g = &m->aProg[PLP_READ];
  if( m->eHold!=PLK_NONE || db->autoCommit || db->nVdbeActive>0 || g->v->expired ) return;
  if( !g->s.bBinary || db->aDb[g->iDb].pBt->sharable ) return;
  m->eHold = PLK_SEEN;
  m->pNextSeen = db->pPlSeen;
  db->pPlSeen = m;
}

static int plHeldOpen(plait_map *m, Btree *pBt){
  PlProg *g = &m->aProg[PLP_READ];
  int nEach = ROUND8(sqlite3BtreeCursorSize());
  int i;
  if( m->apHeld[0]==0 ){
    u8 *a = sqlite3MallocZero((u64)nEach*ArraySize(m->apHeld));
    if( a==0 ) return SQLITE_NOMEM_BKPT;
    for(i=0; i<ArraySize(m->apHeld); i++) m->apHeld[i] = (BtCursor*)&a[i*nEach];
  }
  for(i=0; i<g->nCsr; i++){
    int rc;
    sqlite3BtreeCursorZero(m->apHeld[i]);
    rc = sqlite3BtreeCursor(pBt, g->aRoot[i], 0, g->apKeyInfo[i], m->apHeld[i]);
    if( rc ){
      while( i-->0 ) sqlite3BtreeCloseCursor(m->apHeld[i]);
      return rc;
    }
  }
  for(i=0; i<g->nCsr; i++){
    if( PL_CSR(m->apHeld[i]) ) PL_X(m->apHeld[i])->bHeld = 1;
  }
  m->eHold = PLK_OPEN;
  return SQLITE_OK;
}

/* What every statement checks in a concurrent database when it begins, but for the fork. */
static SQLITE_INLINE int plHeldSound(Btree *p){
  return p->inTrans!=TRANS_NONE && (!PL_BT(p) || p->pPl->rcBroken==0);
}
static SQLITE_INLINE int plHeldHere(Btree *p){
  return plHeldSound(p) && (!PL_BT(p) || pl_check_fork(p->pPl->pConn)==SQLITE_OK);
}

/* Reads without a statement. False: the read has to be a statement (HOLD-3). */
static int plMapGoOn(plait_map *m, PlOp *pOp){
  sqlite3 *db = m->db;
  PlProg *g = &m->aProg[PLP_READ];
  Btree *pBt = db->aDb[g->iDb].pBt;
  int eNext = PLM_DONE;
  if( !pOp->bShort || g->v->expired || db->xProgress || AtomicLoad(&db->u1.isInterrupted) || !plHeldHere(pBt) ) return 0;
  if( m->eHold==PLK_OPEN || plHeldOpen(m, pBt)==SQLITE_OK ){
    memcpy(g->apCsr, m->apHeld, sizeof(g->apCsr));
    if( pOp->xDo(pOp, &eNext)==SQLITE_OK && eNext==PLM_DONE && plHeldSound(pBt) && !db->mallocFailed ){
      sqlite3Error(db, SQLITE_OK);
      return 1;
    }
  }
  plMapLetGo(db);
  plOpAgain(pOp);
  return 0;
}
