/*
** compare.c - records whose first field is looked for as bytes.
**
** SQLite has a comparison for search keys that begin with an integer, and one for those that begin with text. Bytes go through the
** general one, which costs a search of forty thousand keys of 24 bytes a fifth of its instructions. This one answers the same:
** numbers and text lie before bytes, whatever the collation is; bytes that are a beginning of others before those.
*/

/* As vdbeRecordCompareString(): plFindCompareBlob() has set r1, r2, u.z and n, and a header has one byte for its length. */
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

/* The last lines of sqlite3VdbeFindCompare() for a key that begins with bytes, all of which are there. */
static RecordCompare plFindCompareBlob(UnpackedRecord *pKey){
  pKey->u.z = pKey->aMem[0].z;
  pKey->n = pKey->aMem[0].n;
  return plRecordCompareBlob;
}
