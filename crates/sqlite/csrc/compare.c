/*
** compare.c - comparing records with a search key that begins with a blob.
**
** SQLite has special comparisons for search keys that begin with an integer or with text. Blobs go
** through the general one, which costs a search of forty thousand keys of 24 bytes a fifth of its
** instructions. This one returns the same results: numbers and text sort before blobs, whatever the
** collation is, and a blob that is a prefix of another sorts before it.
*/

/* Like vdbeRecordCompareString(): plFindCompareBlob() has set u.z and n, its caller r1 and r2, and
** a header has one byte for its length. */
static int plRecordCompareBlob(int nRec, const void *pRec, UnpackedRecord *pKey){
  const u8 *a = (const u8*)pRec;
  u32 eType = a[1];
  u32 nHdr = a[0];
  int n, c;
  if( eType>=0x80 ) (void)sqlite3GetVarint32(&a[1], &eType);
  if( eType<12 || (eType & 1) ) return pKey->r1;
  n = (int)((eType-12)/2);
  if( nHdr+(u32)n>(u32)nRec ){
    pKey->errCode = (u8)SQLITE_CORRUPT_BKPT;
    return 0;
  }
  c = memcmp(&a[nHdr], pKey->u.z, (size_t)MIN(n, pKey->n));
  if( c==0 ) c = n - pKey->n;
  if( c ) return c<0 ? pKey->r1 : pKey->r2;
  if( pKey->nField>1 ) return sqlite3VdbeRecordCompareWithSkip(nRec, pRec, pKey, 1);
  pKey->eqSeen = 1;
  return pKey->default_rc;
}

/* The last lines of sqlite3VdbeFindCompare() for a key that begins with a blob without
** zero tail. */
static RecordCompare plFindCompareBlob(UnpackedRecord *pKey){
  pKey->u.z = pKey->aMem[0].z;
  pKey->n = pKey->aMem[0].n;
  return plRecordCompareBlob;
}
