/*
** probe.c - where in a hash table of the WAL-index the entries of page 1 end.
**
** Included by the spliced wal.c. Every transaction that changes the base of a concurrent database writes page 1, which is stamped. So in a
** WAL of many small ones every second frame is page 1, and the entries of one page stand one after the other: to add one, or
** to find the newest, SQLite walks past all of them, thousands in the end. So a handle keeps the last slot in which it has met
** page 1, and begins there. A handle on the base of a session does; all others (those without PlMarks) walk as SQLite does.
**
** Invariant: an entry of a page stands behind nothing but entries of earlier frames, without a free slot between them, back to where
**   the page's entries begin. For it is put into the first slot that is free there, by the writer of the newest frame; and entries are
**   only taken out by walCleanupHash(), from the newest frame back to some other. So of page 1 the slots before one that holds it have
**   nothing newer, and nothing free.
** It holds in every hash table and at all times, so what is kept needs no other proof than that the slot holds page 1 now, in a frame that
** the caller may see: whatever WAL it was kept of.
*/

/* Where to begin a walk over the entries of a page up to frame iLast. */
static SQLITE_INLINE int plProbe(Wal *pWal, u32 iPage, const WalHashLoc *pLoc, u32 iLast){
  int iKey = pWal->iPlProbe;
  u32 iH;
  if( iPage!=1 || pWal->pPlMarks==0 ) return walHash(iPage);
  iH = AtomicLoad(&pLoc->aHash[iKey]);
  if( iH==0 || iH+pLoc->iZero>iLast || pLoc->aPgno[(iH-1)&(HASHTABLE_NPAGE-1)]!=1 ) return walHash(iPage);
  return iKey;
}

/* Page 1 has been met in this slot. */
static SQLITE_INLINE void plProbed(Wal *pWal, u32 iPage, int iKey){
  if( iPage==1 ) pWal->iPlProbe = (u16)iKey;
}
