/*
** cursor.c - opening and closing facade cursors.
**
** The VDBE opens its cursors anew for every run of a statement. So what a facade needs beyond the
** stock struct is pooled per handle, with its buffers. A facade is in PlBtree.pCsr from open to
** close, and in the stock list pBt->pCursor only while it is a stock cursor itself.
*/
#define PL_POOL_MAX 16     /* closed cursors that a handle keeps */

static PlCursor *plTakeCursor(PlBtree *pPl){
  PlCursor *pX = pPl->pPool;
  if( pX ){
    pPl->pPool = pX->pNext;
    pPl->nPool--;
  }else{
    pX = sqlite3MallocZero(sizeof(PlCursor));
    if( pX ) pX->pPl = pPl;
  }
  return pX;
}

static void plFreeCursor(PlCursor *pX){
  pl_buf_free(&pX->key);
  pl_buf_free(&pX->baseKey);
  pl_buf_free(&pX->newKey);
  pl_buf_free(&pX->rd.lo);
  pl_buf_free(&pX->rd.hi);
  pl_iter_free(pX->pSpare);
  sqlite3_free(pX->aRec);
  sqlite3_free(pX->aTmp);
  sqlite3_free(pX->aShape);
  sqlite3_free(pX);
}

static void plFreePool(PlBtree *pPl){
  while( pPl->pPool ){
    PlCursor *pX = pPl->pPool;
    pPl->pPool = pX->pNext;
    plFreeCursor(pX);
  }
  pPl->nPool = 0;
}

/* btreeCursor() for an attached handle. */
static int plOpen(Btree *p, Pgno iTable, int wrFlag, KeyInfo *pKeyInfo, BtCursor *pCur){
  PlBtree *pPl = p->pPl;
  PlCursor *pX;
  if( iTable<1 ) return SQLITE_CORRUPT_BKPT;
  /* A statement that opened other tables before its transaction was broken, or rolled back, has no
  ** snapshot to read this one in. */
  if( PL_UNLIKELY(pPl->rcBroken) ) return pPl->rcBroken;
  if( PL_UNLIKELY(p->inTrans==TRANS_NONE) ) return SQLITE_ABORT_ROLLBACK;
  pX = plTakeCursor(pPl);
  if( pX==0 ) return SQLITE_NOMEM_BKPT;
  PL_X(pCur) = pX;
  pCur->hints = PLH_Facade;
  pCur->pgnoRoot = iTable;
  pCur->pKeyInfo = pKeyInfo;
  pCur->curIntKey = pKeyInfo==0;
  pCur->pBt = p->pBt;
  pCur->eState = CURSOR_INVALID;
  pX->pOut = pCur;
  pX->pIn = 0;
  pX->bWrite = wrFlag!=0;
  plFront(pX);
  pX->ePos = POS_NONE;
  pX->eSrc = SRC_BASE;
  pX->eBase = PLB_UNSYNC;
  pX->eOver = PLO_UNSYNC;
  pX->bKey = pX->bBaseKey = pX->bRec = pX->bShape = pX->bCustom = 0;
  pX->bLook = 0;
  pX->eRun = RUN_NONE;
  pX->bQuiet = pX->bSeeked = pX->bNewRowid = pX->bTripRow = pX->bHeld = 0;
  pX->rd.eKind = PLR_NONE;
  pX->rd.bLoose = 0;
  pX->pIter = 0;
  pX->pNext = pPl->pCsr;
  if( pX->pNext ) pX->pNext->ppPrev = &pX->pNext;
  pX->ppPrev = &pPl->pCsr;
  pPl->pCsr = pX;
  if( !p->db->init.busy ) pPl->bUsed = 1;     /* SQLite loads the schema for itself */
  if( iTable!=SCHEMA_ROOT ) pPl->bRows = 1;
  if( pPl->bExcl ){
    int rc = plStockOpen(pX, pCur);
    if( rc==SQLITE_OK ) pX->eMode = PLC_PASS;
    return rc;
  }
  if( !pPl->bTrack && pPl->eWrite!=PL_WRITE_QUEUED ) return plRdCoarse(pPl, iTable);
  return SQLITE_OK;
}

static int plBtreeCloseCursor(BtCursor *pCur){
  PlCursor *pX = PL_X(pCur);
  PlBtree *pPl = pX->pPl;
  plRdFlush(pX);
  if( pX->pIn ) sqlite3StockBtreeCloseCursor(pX->pIn);
  plSpareIter(pX);
  sqlite3DbFree(pPl->pBtree->db, pX->pLook);
  pX->pLook = 0;
  *pX->ppPrev = pX->pNext;
  if( pX->pNext ) pX->pNext->ppPrev = pX->ppPrev;
  pX->pOut = 0;
  if( pPl->nPool<PL_POOL_MAX ){
    pX->pNext = pPl->pPool;
    pPl->pPool = pX;
    pPl->nPool++;
  }else{
    plFreeCursor(pX);
  }
  pCur->pBtree = 0;
  pCur->hints = pCur->curFlags = 0;
  pCur->eState = CURSOR_INVALID;
  return SQLITE_OK;
}

SQLITE_PRIVATE SQLITE_INLINE int sqlite3BtreeCursor(
  Btree *p, Pgno iTable, int wrFlag, struct KeyInfo *pKeyInfo, BtCursor *pCur
){
  if( wrFlag && PL_UNLIKELY(p->db->nDb>2) && PL_MET(p->db) ){
    int rc = plRefuseMixed(p);
    if( rc ) return rc;
  }
  if( PL_BT(p) ) return plOpen(p, iTable, wrFlag, pKeyInfo, pCur);
  return sqlite3StockBtreeCursor(p, iTable, wrFlag, pKeyInfo, pCur);
}

/* The VDBE's hints share their byte with our marks. The hint that marks a cursor on sqlite_sequence
** (rowid.c) means to fill pages on a stock cursor of a table: there it is removed. */
SQLITE_PRIVATE void sqlite3BtreeCursorHintFlags(BtCursor *pCur, unsigned x){
  if( !PL_CSR(pCur) && pCur->pKeyInfo==0 ) x &= ~(unsigned)BTREE_BULKLOAD;
  pCur->hints = (u8)(x | (pCur->hints & (PLH_Facade|PLH_Front)));
}

SQLITE_PRIVATE int sqlite3BtreeCursorSize(void){
  return ROUND8(sizeof(PlFacade));
}
