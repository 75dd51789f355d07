//! What SQLite counts of its memory.

use super::Place::{Before, Replace};
use super::{Concern, Edit};

/// By concern.
pub(super) const CONCERNS: &[Concern] = &[MEMORY];

const MEMORY: Concern = Concern {
    title: "counts of memory",
    purpose: "The system's allocator is called, and memory is counted, without the mutex that all \
              threads of a process share (`csrc/memory.c`).",
    look_at: "`mallocWithAlarm`, `sqlite3_free`, and who reads or changes `sqlite3Stat` and \
              `mem0.alarmThreshold`",
    edits: &[
        Edit {
            section: "status.c",
            anchor: "SQLITE_PRIVATE sqlite3_int64 sqlite3StatusValue(int op){",
            place: Before,
            text: "static void plStatAdd(int op, int n); /* [plait] */\nstatic void plStatRaise(int op, sqlite3StatValueType v); /* [plait] */\nstatic void plStatReset(int op); /* [plait] */",
            why: "memory.c, which comes with malloc.c, counts what that counts",
        },
        Edit {
            section: "status.c",
            anchor: "  return wsdStat.nowValue[op];",
            place: Replace,
            text: "  return AtomicLoad(&wsdStat.nowValue[op]); /* [plait] */",
            why: "other threads may be counting",
        },
        Edit {
            section: "status.c",
            anchor: "  wsdStat.nowValue[op] += N;",
            place: Before,
            text: "  if( statMutex[op]==0 ){ plStatAdd(op, N); return; } /* [plait] */",
            why: "a thread that holds the mutex counts beside others that do not",
        },
        Edit {
            section: "status.c",
            anchor: "  wsdStat.nowValue[op] -= N;",
            place: Before,
            text: "  if( statMutex[op]==0 ){ plStatAdd(op, -N); return; } /* [plait] */",
            why: "a thread that holds the mutex counts beside others that do not",
        },
        Edit {
            section: "status.c",
            anchor: "  if( newValue>wsdStat.mxValue[op] ){",
            place: Before,
            text: "  if( statMutex[op]==0 ){ plStatRaise(op, newValue); return; } /* [plait] */",
            why: "a thread that holds the mutex counts beside others that do not",
        },
        Edit {
            section: "status.c",
            anchor: "  *pCurrent = wsdStat.nowValue[op];",
            place: Replace,
            text: "  *pCurrent = AtomicLoad(&wsdStat.nowValue[op]); /* [plait] */",
            why: "other threads may be counting",
        },
        Edit {
            section: "status.c",
            anchor: "  *pHighwater = wsdStat.mxValue[op];",
            place: Replace,
            text: "  *pHighwater = AtomicLoad(&wsdStat.mxValue[op]); /* [plait] */\n  if( resetFlag && statMutex[op]==0 ){ plStatReset(op); resetFlag = 0; } /* [plait] */",
            why: "other threads may be counting",
        },
        Edit {
            section: "malloc.c",
            anchor: "SQLITE_PRIVATE void *sqlite3Malloc(u64 n){",
            place: Before,
            text: "#include \"memory.c\" /* [plait] */",
            why: "memory.c defines what the other edits of this concern call",
        },
        Edit {
            section: "malloc.c",
            anchor: "  if( n==0 || n>SQLITE_MAX_ALLOCATION_SIZE ){",
            place: Replace,
            text: "  if( n-1<SQLITE_MAX_ALLOCATION_SIZE && sqlite3GlobalConfig.bMemstat && plCountsFreely() ){ /* [plait] */\n    p = plMalloc((int)n); /* [plait] */\n  }else if( n==0 || n>SQLITE_MAX_ALLOCATION_SIZE ){ /* [plait] */",
            why: "plMalloc is mallocWithAlarm without the mutex",
        },
        Edit {
            section: "malloc.c",
            anchor: "  if( sqlite3GlobalConfig.bMemstat ){",
            place: Replace,
            text: "  if( sqlite3GlobalConfig.bMemstat && plCountsFreely() ){ /* [plait] */\n    plFree(p); /* [plait] */\n  }else if( sqlite3GlobalConfig.bMemstat ){ /* [plait] */",
            why: "plFree counts the release without the mutex",
        },
    ],
};
