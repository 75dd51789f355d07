//! The WAL-index: its version, its locks, its hash tables.

use super::Place::{After, Before, Replace};
use super::{Concern, Edit};

/// By concern.
pub(super) const CONCERNS: &[Concern] = &[READ_MARKS, INDEX_VERSION, PAGE_ONE];

const READ_MARKS: Concern = Concern {
    title: "locks on read marks",
    purpose: "A connection counts its lock on a read mark in our shared memory instead of taking \
              it in the file (`csrc/marks.c`).",
    look_at: "who locks read marks, alone or with others in one range; who waits at the barrier",
    edits: &[
        Edit {
            section: "wal.c",
            anchor: "struct Wal {",
            place: After,
            text: "  const struct PlMarks *pPlMarks; /* [plait] locks on read marks, or 0: see marks.c */\n  u8 bPlShared;              /* [plait] the read lock is counted there */\n  u8 ePlFence;               /* [plait] PLF_x */\n  struct PlFrames *pPlFrames; /* [plait] frame.c */\n  struct PlFirstPages { u32 aSalt[2], mxFrame, nBackfill, iFirst, iLast, iBrought, aiKept[2]; u8 aKept[2][100]; } plFirstPages; /* [plait] fits.c */\n  u16 iPlProbe;              /* [plait] probe.c */\n  struct PlWriteOut aPlOut[2]; /* [plait] of the WAL, of the database: writeout.c */",
            why: "a Wal carries what the edits of wal.c know; sqlite3WalOpen zeroes the fields",
        },
        Edit {
            section: "wal.c",
            anchor: "static void walShmBarrier(Wal *pWal){",
            place: Before,
            text: "#include \"marks.c\" /* [plait] */",
            why: "marks.c defines what the edits of wal.c below it call",
        },
        Edit {
            section: "wal.c",
            anchor: "  rc = sqlite3OsShmLock(pWal->pDbFd, lockIdx, 1,",
            place: Replace,
            text: "  rc = plShmLock(pWal, lockIdx, 1, /* [plait] */",
            why: "walLockShared takes locks by plShmLock",
        },
        Edit {
            section: "wal.c",
            anchor: "  (void)sqlite3OsShmLock(pWal->pDbFd, lockIdx, 1,",
            place: Replace,
            text: "  (void)plShmLock(pWal, lockIdx, 1, /* [plait] */",
            why: "walUnlockShared gives them back by plShmLock",
        },
        Edit {
            section: "wal.c",
            anchor: "  rc = sqlite3OsShmLock(pWal->pDbFd, lockIdx, n,",
            place: Replace,
            text: "  rc = plShmLock(pWal, lockIdx, n, /* [plait] */",
            why: "walLockExclusive takes locks by plShmLock",
        },
        Edit {
            section: "wal.c",
            anchor: "  (void)sqlite3OsShmLock(pWal->pDbFd, lockIdx, n,",
            place: Replace,
            text: "  (void)plShmLock(pWal, lockIdx, n, /* [plait] */",
            why: "walUnlockExclusive gives them back by plShmLock",
        },
        Edit {
            section: "wal.c",
            anchor: "    sqlite3OsShmBarrier(pWal->pDbFd);",
            place: Replace,
            text: "    if( pWal->pPlMarks ) sqlite3MemoryBarrier(); /* [plait] */\n    else sqlite3OsShmBarrier(pWal->pDbFd); /* [plait] */",
            why: "the barrier of the VFS takes a mutex of the whole process as well, \"for \
                  redundancy\", and many readers meet there",
        },
    ],
};

const INDEX_VERSION: Concern = Concern {
    title: "version of the WAL-index",
    purpose: "Under the fence the WAL-index has a version that stock SQLite refuses, and a \
              checkpoint keeps the fence in the file.",
    look_at: "what stock SQLite does before it looks at the version (`walIndexReadHdr`); \
              `walIndexRecover`; who writes the header (`walIndexWriteHdr`)",
    edits: &[
        Edit {
            section: "wal.c",
            anchor: "  pWal->hdr.iVersion = WALINDEX_MAX_VERSION;",
            place: Replace,
            text: "  pWal->hdr.iVersion = plWalIndexVersion(pWal); /* [plait] */",
            why: "plWalIndexVersion says under the fence that stock SQLite is to leave the \
                  WAL-index alone",
        },
        Edit {
            section: "wal.c",
            anchor: "  if( badHdr==0 && pWal->hdr.iVersion!=WALINDEX_MAX_VERSION ){",
            place: Replace,
            text: "  if( badHdr==0 && pWal->hdr.iVersion!=WALINDEX_MAX_VERSION && pWal->hdr.iVersion!=PL_WALINDEX_VERSION ){ /* [plait] */",
            why: "walIndexReadHdr takes our version as well as its own",
        },
        Edit {
            section: "wal.c",
            anchor: "SQLITE_PRIVATE int sqlite3WalEndWriteTransaction(Wal *pWal){",
            place: After,
            text: "  pWal->ePlFence = PLF_Unknown; /* [plait] */",
            why: "when a write transaction ends, what it stamped is in force or was rolled back",
        },
        Edit {
            section: "wal.c",
            anchor: "          iOffset = (iDbpage-1)*(i64)szPage;",
            place: After,
            text: "          if( iDbpage==1 ) plKeepFence(pWal, zBuf); /* [plait] */",
            why: "a checkpoint that a reader holds back does not take the fence from the file",
        },
        Edit {
            section: "wal.c",
            anchor: "          rc = sqlite3OsTruncate(pWal->pWalFd, 0);",
            place: Replace,
            text: "          rc = sqlite3OsTruncate(pWal->pWalFd, pWal->hdr.iVersion==PL_WALINDEX_VERSION ? WAL_HDRSIZE : 0); /* [plait] */",
            why: "a WAL that is emptied under the fence keeps its header: where the WAL is empty stock \
                  SQLite looks for no WAL-index, and tells of the fence as of a file that is no \
                  database",
        },
    ],
};

const PAGE_ONE: Concern = Concern {
    title: "entries of page 1",
    purpose: "A search in a hash table of the WAL-index begins behind the entries of page 1 that \
              it has met before (`csrc/probe.c`).",
    look_at: "`walIndexAppend`, `walFindFrame`, `walCleanupHash`: whether entries of one page \
              still follow each other from the oldest to the newest",
    edits: &[
        Edit {
            section: "wal.c",
            anchor: "static int walIndexAppend(Wal *pWal, u32 iFrame, u32 iPage){",
            place: Before,
            text: "#include \"probe.c\" /* [plait] */",
            why: "probe.c defines what the other edits of this concern call",
        },
        Edit {
            section: "wal.c",
            anchor: "    for(iKey=walHash(iPage); sLoc.aHash[iKey]; iKey=walNextHash(iKey)){",
            place: Replace,
            text: "    for(iKey=plProbe(pWal, iPage, &sLoc, iFrame); sLoc.aHash[iKey]; iKey=walNextHash(iKey)){ /* [plait] */",
            why: "page 1 is in every second frame of many small transactions: to add an entry, \
                  plProbe begins behind those before it",
        },
        Edit {
            section: "wal.c",
            anchor: "    AtomicStore(&sLoc.aHash[iKey], (ht_slot)idx);",
            place: After,
            text: "    plProbed(pWal, iPage, iKey); /* [plait] */",
            why: "plProbed keeps the slot of the entry that was added, where the next walk begins",
        },
        Edit {
            section: "wal.c",
            anchor: "    iKey = walHash(pgno);",
            place: Replace,
            text: "    iKey = plProbe(pWal, pgno, &sLoc, iLast); /* [plait] */",
            why: "to find a frame, plProbe begins where page 1 was met last; frames below minFrame \
                  are no worse than those that the walk would pass first",
        },
        Edit {
            section: "wal.c",
            anchor: "        iRead = iFrame;",
            place: After,
            text: "        plProbed(pWal, pgno, iKey); /* [plait] */",
            why: "plProbed keeps the slot of the entry that was found, where the next walk begins",
        },
    ],
};
