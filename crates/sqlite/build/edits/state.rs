//! What SQLite's own structures carry for a concurrent database.

use super::Place::After;
use super::{Concern, Edit};

/// By concern.
pub(super) const CONCERNS: &[Concern] = &[STATE];

const STATE: Concern = Concern {
    title: "state",
    purpose: "Three structures of SQLite carry what the layer knows of a handle, a connection and \
              a statement.",
    look_at: "whether they are still zeroed when they are made: `sqlite3BtreeOpen`, \
              `openDatabase`, `sqlite3VdbeCreate`; new fields of the same names",
    edits: &[
        Edit {
            section: "btreeInt.h",
            anchor: "struct Btree {",
            place: After,
            text: "  struct PlBtree *pPl;  /* [plait] concurrent side of this handle, or 0 */\n  u8 bPlLooked;         /* [plait] the file goes with those beside it: see fits.c */\n  u8 ePlPlace;          /* [plait] PLW_x, where the file lies: see alone.c */\n  u8 ePlFollows;        /* [plait] PLO_x, may it write a replica: see follows.c */",
            why: "the concurrent side of a handle hangs on it; sqlite3BtreeOpen zeroes the fields",
        },
        Edit {
            section: "sqliteInt.h",
            anchor: "  struct Vdbe *pVdbe;           /* List of active virtual machines */",
            place: After,
            text: "  u8 bPlMet;                    /* [plait] one of its files is concurrent, may be, or was: see PL_MET() */\n  struct plait_map *pPlSeen;    /* [plait] maps that go on reading where they are: see map_hold.c */\n  u64 iPlStatement;             /* [plait] the last that was given out: this and what follows, see whole.c */\n  u64 iPlOpening;               /* [plait] the statement whose journal SQLite opens */\n  u32 nPlRefused, nPlVtab, nPlInner;  /* [plait] refusals, those to virtual tables, and statements inside of others, so far */\n  u32 aPlRefused[32];           /* [plait] by primary code: the last of them */\n  u8 rcPlRefused;               /* [plait] the code of the last */\n  u32 nPlUpdate;                /* [plait] virtual tables that write now */\n  u32 nPlTear;                  /* [plait] files that were torn so far */\n  u8 bPlTorn;                   /* [plait] one may be */\n  u8 bPlCrossed;                /* [plait] journals did not end in order */\n  int nPlTaken;                 /* [plait] the depth of a statement that is taken back without SQLite's journal, or 0 */\n  u8 bPlCommitting;             /* [plait] PL_x: see several.c */\n  struct Vdbe *pPlFirst;        /* [plait] a statement that runs, perhaps the first of a plain BEGIN: see begin.c */\n  u64 iPlFirst;                 /* [plait] and its hash, once it has read; until the transaction ends */\n  u8 ePlBegin;                  /* [plait] PL_BEGIN_x of PRAGMA plait_begin; 0: not said */",
            why: "a connection knows whether any of this concerns it, the maps that go on reading where they are, what the engine \
                  has refused, and the first statement of a BEGIN; openDatabase zeroes the fields",
        },
        Edit {
            section: "vdbeInt.h",
            anchor: "  u8 eVdbeState;          /* On of the VDBE_*_STATE values */",
            place: After,
            text: "  u8 bPlEach;             /* [plait] changes files that need not be committed together */\n  u8 bPlRead;             /* [plait] reads for a map and ends: see map_hold.c */\n  u8 bPlExec;             /* [plait] sqlite3VdbeExec() runs it: see whole.c */\n  u8 bPlMiddle, bPlEnded; /* [plait] it writes; its transaction is gone: this and what follows, see whole.c */\n  u32 nPlRefused, nPlVtab, nPlInner, nPlPass, nPlTear;  /* [plait] what was so when it began */\n  u32 mPlFiles;           /* [plait] concurrent files that it writes to */\n  i64 nPlDefCons, nPlDefImmCons;      /* [plait] */\n  u64 iPlStatement;       /* [plait] */",
            why: "a statement knows its savepoint, and whether its files may be committed one by \
                  one; sqlite3VdbeCreate zeroes the fields",
        },
    ],
};
