//! What is a process's own: children of fork(), who uses a WAL-index, descriptors.

use super::Place::{After, Before, Replace};
use super::{Concern, Edit};

/// By concern.
pub(super) const CONCERNS: &[Concern] = &[FORK, DEADMAN, LENT, UNHEARD];

const FORK: Concern = Concern {
    title: "children of fork()",
    purpose: "A child of `fork()` opens a concurrent database with no note of its parent's locks \
              (`csrc/fork.c`).",
    look_at: "`findInodeInfo`, `findReusableFd`, and what else `unixInodeInfo` notes",
    edits: &[
        Edit {
            section: "os_unix.c",
            anchor: "struct unixInodeInfo {",
            place: Before,
            text: "static u64 iPlProcess = 1; /* [plait] number of this process: one more than that of who has forked it */",
            why: "a process has a number of its own: ids of processes are used again, and are \
                  equal in other namespaces",
        },
        Edit {
            section: "os_unix.c",
            anchor: "  unixInodeInfo *pPrev;           /*    .... doubly linked */",
            place: After,
            text: "  u64 iPlOwner;                   /* [plait] iPlProcess of who works with it as a concurrent database, or 0 */\n  int nPlFirst;                   /* [plait] handles in their first transaction, which may find that it is one */",
            why: "locks belong to a process, and these fields say which one has them",
        },
        Edit {
            section: "os_unix.c",
            anchor: "  while( pInode && memcmp(&fileId, &pInode->fileId, sizeof(fileId)) ){",
            place: Replace,
            text: "  while( pInode && (memcmp(&fileId, &pInode->fileId, sizeof(fileId)) || (pInode->iPlOwner && pInode->iPlOwner!=iPlProcess)) ){ /* [plait] */",
            why: "a child that opens the database has none of its parent's locks, and is refused \
                  its parent's connections",
        },
        Edit {
            section: "os_unix.c",
            anchor: "    while( pInode && (pInode->fileId.dev!=sStat.st_dev",
            place: Replace,
            text: "    while( pInode && ((pInode->iPlOwner && pInode->iPlOwner!=iPlProcess) || pInode->fileId.dev!=sStat.st_dev /* [plait] */",
            why: "findReusableFd would wait for a mutex that a thread of the parent had",
        },
    ],
};

const DEADMAN: Concern = Concern {
    title: "the dead-man byte of a WAL-index",
    purpose: "The lock on the dead-man byte of a WAL-index is one of the open file, which lasts as \
              long as that is open (`csrc/deadman.c`).",
    look_at: "who locks or asks for UNIX_SHM_DMS",
    edits: &[
        Edit {
            section: "os_unix.c",
            anchor: "  u8 isUnlocked;             /* True if no DMS lock held */",
            place: After,
            text: "  u8 bPlSecond;              /* [plait] this process has opened it for another database */\n  u64 iPlHeld;               /* [plait] the DMS lock is the open file's, taken by this process (iPlProcess), or 0 */\n  u64 iPlClaimed;            /* [plait] this process has claimed it (iPlProcess), or 0 */\n  u64 iPlInode;              /* [plait] its inode, or 0: not known yet */\n  u64 iPlDevice;             /* [plait] its device, once the inode is known */",
            why: "the node of a WAL-index knows whose lock and claim it has; unixOpenSharedMemory zeroes the \
                  fields",
        },
        Edit {
            section: "os_unix.c",
            anchor: "static int unixIsSharingShmNode(unixFile *pFile){",
            place: Before,
            text: "#include \"deadman.c\" /* [plait] */",
            why: "deadman.c defines what the other edits of this concern call",
        },
        Edit {
            section: "os_unix.c",
            anchor: "  osFcntl(pShmNode->hShm, F_GETLK, &lock);",
            place: Before,
            text: "  if( pShmNode->iPlHeld || pShmNode->bPlSecond ) return plIndexIsShared(pShmNode); /* [plait] */",
            why: "F_GETLK does not see the lock of the process's own open file, and \
                  plIndexIsShared asks as that file",
        },
        Edit {
            section: "os_unix.c",
            anchor: "      robust_close(pFd, p->hShm, __LINE__);",
            place: Before,
            text: "      plLetGoOfIndex(p); /* [plait] */",
            why: "a child made by fork() has the same open file, and plLetGoOfIndex gives the lock \
                  up for it too",
        },
    ],
};

const LENT: Concern = Concern {
    title: "descriptors that are lent",
    purpose: "The hidden connection uses the descriptors of the connections that it works for \
              (`csrc/lent.c`).",
    look_at: "who closes `unixFile.h`, or keeps it for later: `robust_close`, `setPendingFd`, \
              `SQLITE_FCNTL_NULL_IO`; how `unixOpen` comes to its descriptor; and who syncs one: \
              `full_fsync`",
    edits: &[
        Edit {
            section: "os_unix.c",
            anchor: "  int szChunk;                        /* Configured by FCNTL_CHUNK_SIZE */",
            place: After,
            text: "  struct PlLent *pPlLent;             /* [plait] its descriptor is lent, or borrowed */\n  u8 bPlBorrows;                      /* [plait] it was to borrow one, and so is its WAL */",
            why: "a file knows whether others use its descriptor; unixOpen zeroes the fields",
        },
        Edit {
            section: "os_unix.c",
            anchor: "static void robust_close(unixFile *pFile, int h, int lineno){",
            place: Before,
            text: "#include \"lent.c\" /* [plait] */",
            why: "lent.c defines what the other edits of this concern call",
        },
        Edit {
            section: "os_unix.c",
            anchor: "  if( osClose(h) ){",
            place: Before,
            text: "  if( plLetGo(pFile, h) ) return; /* [plait] */",
            why: "a descriptor is closed by the last who uses it",
        },
        Edit {
            section: "os_unix.c",
            anchor: "  UnixUnusedFd *p = pFile->pPreallocatedUnused;",
            place: After,
            text: "  if( pFile->h<0 ) return; /* [plait] */\n  if( plLetGo(pFile, pFile->h) ){ pFile->h = -1; return; } /* [plait] */",
            why: "a descriptor that others use is none that waits to be closed, or used again, nor \
                  is one that was given back before",
        },
        Edit {
            section: "os_unix.c",
            anchor: "  assert( pFile->pInode->nLock>0 || pFile->pInode->bProcessLock==0 );",
            place: After,
            text: "  sqlite3_mutex_enter(pInode->pLockMutex); /* [plait] */\n  if( pInode->nLock ) setPendingFd(pFile); /* [plait] */\n  else if( pFile->h>=0 ){ robust_close(pFile, pFile->h, __LINE__); pFile->h = -1; } /* [plait] */\n  sqlite3_mutex_leave(pInode->pLockMutex); /* [plait] */",
            why: "a close drops all locks of the process on the file: SQLite's own comes behind the \
                  mutex, when another thread may have locked since. What follows finds nothing left \
                  to do",
        },
        Edit {
            section: "os_unix.c",
            anchor: "  rc = full_fsync(pFile->h, isFullsync, isDataOnly);",
            place: Replace,
            text: "  rc = plSync(pFile, isFullsync, isDataOnly); /* [plait] */",
            why: "plSync tells all who share a descriptor of a sync of it that has failed",
        },
        Edit {
            section: "os_unix.c",
            anchor: "  openFlags |= (O_LARGEFILE|O_BINARY|O_NOFOLLOW);",
            place: After,
            text: "  fd = plOpenBorrowed(p, zName, flags, fd); /* [plait] */",
            why: "plOpenBorrowed has the descriptor for a hidden connection",
        },
        Edit {
            section: "os_unix.c",
            anchor: "      osClose(pFile->h);",
            place: Replace,
            text: "      robust_close(pFile, pFile->h, __LINE__); /* [plait] */",
            why: "an application that has its file do nothing any more does not close what others use",
        },
        Edit {
            section: "wal.c",
            anchor: "  rc = sqlite3OsOpen(pVfs, zWalName, pRet->pWalFd, flags, &flags);",
            place: Replace,
            text: "  rc = plOpenWal(pVfs, zWalName, pDbFd, pRet->pWalFd, &flags); /* [plait] */",
            why: "plOpenWal borrows the WAL of a file that was to be borrowed",
        },
        Edit {
            section: "wal.c",
            anchor: "SQLITE_PRIVATE int sqlite3WalOpen(",
            place: Before,
            text: "static int plOpenWal(sqlite3_vfs*, const char*, sqlite3_file*, sqlite3_file*, int*); /* [plait] */",
            why: "it is defined behind the b-tree, with the hidden connection",
        },
    ],
};

const UNHEARD: Concern = Concern {
    title: "warnings that nobody hears",
    purpose: "A handle looks at the name of its file, when it is opened and when it is closed, only if the \
              application has set SQLITE_CONFIG_LOG: what it finds goes there and nowhere else.",
    look_at: "`verifyDbFile`: whether it does more than call `sqlite3_log`",
    edits: &[Edit {
        section: "os_unix.c",
        anchor: "  /* These verifications occurs for the main database only */",
        place: Before,
        text: "  if( sqlite3GlobalConfig.xLog==0 ) return; /* [plait] */",
        why: "four system calls of a visit, which opens a database, reads a row and closes it",
    }],
};
