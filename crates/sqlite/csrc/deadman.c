/*
** deadman.c - the lock that shows that a process uses a WAL-index lasts as long as the process has
** it open.
**
** A process that opens a WAL-index and finds no lock on its dead-man byte (UNIX_SHM_DMS) takes it
** for left over and truncates it. If another process has it mapped, the kernel ends that process
** by SIGBUS. POSIX drops the locks of a process on a file as soon as it closes any descriptor of
** that file: a program that archives its own folder does, and so does a second copy of SQLite. So
** for a concurrent database the lock on this byte belongs to the open file (OFD); all other
** processes, with stock SQLite among them, meet it like any other lock.
**
**  - DEADMAN-1 The OFD lock is taken before the POSIX lock is released. Both are shared: there is
**    no moment without.
**  - DEADMAN-2 SQLite checks this byte before it removes WAL and WAL-index
**    (unixIsSharingShmNode()): so it finds a process that has lost all POSIX locks. It checks
**    through the open file, which does not meet its own lock.
**  - DEADMAN-3 A child made by fork() shares the open file. A parent that closes releases the lock
**    for both. A parent that is killed does not: while such a child lives, processes that close,
**    the child among them, leave the WAL where it is, which harms nothing. A handle that asks for
**    locking_mode=exclusive with a WAL-index of others is busy as long.
**  - DEADMAN-4 A child that opens the WAL-index itself meets its parent's lock, as that of any
**    other process. But a process that meets a lock of its own, since it has made another database
**    under the name of one that it still has open (plSharesIndex()), keeps the POSIX lock for the
**    second, and does not check, as with stock SQLite.
*/
#ifndef F_OFD_GETLK
# define F_OFD_GETLK 36       /* of Linux; <fcntl.h> defines them with _GNU_SOURCE */
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

/* Moves the lock to the open file; the mutex of all files is held. If that fails, SQLite's own
** lock stays. */
static void plHoldIndex(unixShmNode *pNode){
  unixInodeInfo *pInode;
  struct flock f;
  assert( unixMutexHeld() );
  if( pNode->iPlHeld || pNode->bPlSecond || pNode->hShm<0 || pNode->isUnlocked ) return;
  for(pInode=inodeList; pInode; pInode=pInode->pNext){
    unixShmNode *pOther = pInode->pShmNode;
    if( pInode->iPlOwner && pInode->iPlOwner!=iPlProcess ) continue;      /* fork.c */
    if( pOther && pOther!=pNode && strcmp(pOther->zFilename, pNode->zFilename)==0 ) pNode->bPlSecond = 1;
  }
  if( pNode->bPlSecond || plDeadman(pNode, F_OFD_SETLK, F_RDLCK, &f) ) return;
  pNode->iPlHeld = iPlProcess;
  (void)plDeadman(pNode, F_SETLK, F_UNLCK, &f);
}

/* The WAL-index is about to be closed: releases its lock, and the claim (shm/locks.rs), also for
** processes that have inherited it (DEADMAN-3). */
static void plLetGoOfIndex(unixShmNode *pNode){
  struct flock f;
  if( pNode->iPlHeld!=iPlProcess ) return;
  memset(&f, 0, sizeof(f));
  f.l_type = F_UNLCK;
  f.l_whence = SEEK_SET;
  (void)osFcntl(pNode->hShm, F_OFD_SETLK, &f);
}

/* True if another process uses it (DEADMAN-2, DEADMAN-4). */
static int plIndexIsShared(unixShmNode *pNode){
  struct flock f;
  return !pNode->bPlSecond && plDeadman(pNode, F_OFD_GETLK, F_WRLCK, &f)==0 && f.l_type!=F_UNLCK;
}
