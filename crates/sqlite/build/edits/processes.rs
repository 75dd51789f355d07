//! Other processes: children of fork(), and who uses a WAL-index.

use super::Place::{After, Before, Replace};
use super::{Concern, Edit};

/// By concern.
pub(super) const CONCERNS: &[Concern] = &[FORK, DEADMAN];

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
            text: "  u8 bPlSecond;              /* [plait] this process has it open already */\n  u64 iPlHeld;               /* [plait] the DMS lock is the open file's, taken by this process (iPlProcess), or 0 */",
            why: "the node of a WAL-index knows whose lock it is; unixOpenSharedMemory zeroes the \
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
