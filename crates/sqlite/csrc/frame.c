/*
** frame.c - frames of the base's WAL in one write.
**
** Included by the spliced wal.c. SQLite writes the header of a frame and its page one after the other. Both calls cost
** about the same, and a bulk load and a merge do little else.
*/
#define PL_FRAME_PAGE 4096     /* largest page that is copied; it lies on the stack */

static int plWriteFrame(WalWriter *p, const u8 *aHeader, const void *pData, sqlite3_int64 iOffset){
  u8 aFrame[WAL_FRAME_HDRSIZE + PL_FRAME_PAGE];
  memcpy(aFrame, aHeader, WAL_FRAME_HDRSIZE);
  memcpy(&aFrame[WAL_FRAME_HDRSIZE], pData, p->szPage);
  return walWriteToLog(p, aFrame, WAL_FRAME_HDRSIZE + p->szPage, iOffset);
}
