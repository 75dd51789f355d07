/*
** search.h - where a search on a page looks first, and what it will look at next.
**
** Rowids. sqlite3BtreeTableMoveto() halves what is left of a page's cells, and on a leaf each look
** is at memory that was not touched for long: five or six looks for a page of forty rows. Mostly
** the rowids of a leaf have no holes, or few. Two neighbouring cells of the parent, which the
** search has just visited, bound the leaf's keys. If that range has about as many keys as the leaf
** has cells, the place of a key follows from its distance to the first.
**
** The result is only a place to begin at: from any cell of the page the search ends at the same
** place, so a parent that lies, or a key outside of the leaf's range, costs looks and no more.
**
** Indexes. Entries are longer and their pages more, so that most looks wait for memory. During one
** look the two cells of which one is next are prefetched.
*/

/* Returns the key of a cell on an interior page of a table. */
static SQLITE_INLINE i64 plDivider(const MemPage *pPage, int i){
  const u8 *a = &pPage->aDataOfst[pPage->maskPage & get2byteAligned(&pPage->aCellIdx[2*i])];
  u64 iKey;
  if( a[0]<0x80 ) return a[0];
  if( a[1]<0x80 ) return (a[0]&0x7f)<<7 | a[1];
  if( a[2]<0x80 ) return (a[0]&0x7f)<<14 | (a[1]&0x7f)<<7 | a[2];
  (void)sqlite3GetVarint(a, &iKey);
  return (i64)iKey;
}

/* Returns the cell of a page to look at first, out of 0..upr. */
static SQLITE_INLINE int plFirstLook(BtCursor *pCur, MemPage *pPage, i64 iKey, int upr){
  const MemPage *pParent;
  i64 iBefore;
  u64 nKey, i;
  int ix;
  if( !pPage->intKeyLeaf || pCur->iPage<1 ) return upr>>1;
  pParent = pCur->apPage[pCur->iPage-1];
  ix = pCur->aiIdx[pCur->iPage-1];
  if( ix<1 || ix>=pParent->nCell ) return upr>>1;
  iBefore = plDivider(pParent, ix-1);
  nKey = (u64)plDivider(pParent, ix) - (u64)iBefore;
  if( nKey>(u64)(upr + upr/8 + 1) ) return upr>>1;
  i = (u64)iKey - (u64)iBefore - 1;
  return i<(u64)upr ? (int)i : upr;
}

/* A search among lwr..upr of a page's cells is about to look at idx: prefetches where it may
** look next. */
static SQLITE_INLINE void plFetchNext(const MemPage *pPage, int lwr, int idx, int upr){
#if defined(__GNUC__)
# define PL_FETCH(I) __builtin_prefetch(&pPage->aDataOfst[pPage->maskPage & get2byteAligned(&pPage->aCellIdx[2*(I)])])
  if( upr-lwr<2 ) return;
  PL_FETCH((lwr+idx-1)>>1);
  PL_FETCH((idx+1+upr)>>1);
# undef PL_FETCH
#else
  UNUSED_PARAMETER2(pPage, lwr+idx+upr);
#endif
}
