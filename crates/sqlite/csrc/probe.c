/*
** probe.c - where in a hash table of the WAL-index the entries of page 1 end.
**
** The spliced wal.c includes this file. Every transaction that changes the base of a concurrent
** database writes page 1, with the stamp. So in a WAL of many small transactions every second frame
** is page 1, and the entries of page 1 follow each other in the table: to add one, or to find the
** newest, SQLite walks past all of them, thousands in the end. So a handle keeps the last slot in
** which it has met page 1, and begins there. A handle on the base of a session does that; all
** others (those without PlMarks) walk as SQLite does.
**
** Invariant: before an entry of a page, back to where the page's entries begin, there are only
** entries of earlier frames, and no free slot. For the writer of the newest frame puts an entry
** into the first slot that is free there; and only walCleanupHash() removes entries, from the
** newest frame back to some other. So the slots before one that holds page 1 hold nothing newer of
** page 1, and nothing free. This is true in every hash table and at all times. So a kept slot needs
** no proof but that it holds page 1 now, in a frame that the caller may see, whatever WAL it was
** kept from.
*/

/* Returns where to begin a walk over the entries of a page up to frame iLast. */
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
