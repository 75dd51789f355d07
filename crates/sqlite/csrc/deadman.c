/*
** deadman.c - the lock by which a process says that it uses a WAL-index lasts as long as it has that open.
**
** Who opens a WAL-index on whose dead-man byte (UNIX_SHM_DMS) nobody has a lock takes it for left over, and cuts it to nothing: under
** the map of whoever uses it, whom the kernel then ends by SIGBUS. POSIX drops the locks of a process on a file as soon as it closes
** any descriptor of that file: a program that archives its own folder does, and so does a second copy of SQLite. So of a concurrent database
** the lock on this byte is one of the open file (OFD), which all others meet as any other, stock SQLite among them.
**
**  - DEADMAN-1 It is taken before the POSIX lock is given up. Both are shared: there is no moment without.
**  - DEADMAN-2 SQLite asks for this byte before it removes WAL and WAL-index (unixIsSharingShmNode()): so it finds who has lost all POSIX locks.
**    It asks as the open file, to which its own lock is no answer.
**  - DEADMAN-3 A child made by fork() shares the open file. A parent that closes gives the lock up for both; one that is killed does not, and as long as such
**    a child lives those who close leave the WAL where it is, which harms nothing. In the child itself DEADMAN-4 holds.
**  - DEADMAN-4 A process that has the WAL-index open a second time, as the child of a fork has what its parent opened, would meet itself: the second one keeps
**    the POSIX lock, and does not ask.
*/
#ifndef F_OFD_GETLK
# define F_OFD_GETLK 36       /* of Linux; <fcntl.h> shows them with _GNU_SOURCE */
# define F_OFD_SETLK 37
#endif

static int plDeadman(unixShmNode *pNode, int eCmd, int eType, struct flock *pLock){
  memset(pLock, 0, sizeof(*pLock));
  pLock->l_type = (short)eType;
  pLock->l_whence = SEEK_SET;
  pLock->l_start = UNIX_SHM_DMS;
  pLock->l_len = 1;
  return osFcntl(pNode->hShm, eCmd, pLock);
}

/* From here on the lock is the open file's; the mutex of all files is held. Where that cannot be, SQLite's own lock stays. */
static void plHoldIndex(unixShmNode *pNode){
  unixInodeInfo *pInode;
  struct flock f;
  assert( unixMutexHeld() );
  if( pNode->iPlHeld || pNode->bPlSecond || pNode->hShm<0 || pNode->isUnlocked ) return;
  for(pInode=inodeList; pInode; pInode=pInode->pNext){
    unixShmNode *pOther = pInode->pShmNode;
    if( pOther && pOther!=pNode && strcmp(pOther->zFilename, pNode->zFilename)==0 ) pNode->bPlSecond = 1;
  }
  if( pNode->bPlSecond || plDeadman(pNode, F_OFD_SETLK, F_RDLCK, &f) ) return;
  pNode->iPlHeld = iPlProcess;
  (void)plDeadman(pNode, F_SETLK, F_UNLCK, &f);
}

/* It is about to be closed: its lock, and the claim (shm/locks.rs), are given up for those too who have inherited it (DEADMAN-3). */
static void plLetGoOfIndex(unixShmNode *pNode){
  struct flock f;
  if( pNode->iPlHeld!=iPlProcess ) return;
  memset(&f, 0, sizeof(f));
  f.l_type = F_UNLCK;
  f.l_whence = SEEK_SET;
  (void)osFcntl(pNode->hShm, F_OFD_SETLK, &f);
}

/* Does anybody else use it? (DEADMAN-2, DEADMAN-4) */
static int plIndexIsShared(unixShmNode *pNode){
  struct flock f;
  return !pNode->bPlSecond && plDeadman(pNode, F_OFD_GETLK, F_WRLCK, &f)==0 && f.l_type!=F_UNLCK;
}
