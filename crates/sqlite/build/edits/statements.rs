//! Statements: that they happen whole, and how they are run and run again.

use super::Place::{After, Before, Replace};
use super::{Concern, Edit};

/// By concern.
pub(super) const CONCERNS: &[Concern] = &[WHOLE, RUN, REGISTERS, INSIDE];

const WHOLE: Concern = Concern {
    title: "a statement happens whole or not at all",
    purpose: "A statement that the engine refuses after its first change is taken back \
              (`csrc/whole.c`).",
    look_at: "OP_Transaction, OP_ResultRow, OP_OpenRead, OP_VUpdate; what `sqlite3VdbeHalt` does \
              for each kind of error; `sqlite3VdbeMakeReady` for statements that write to several \
              files; which virtual tables have `xRollbackTo`",
    edits: &[
        Edit {
            section: "vdbe.c",
            anchor: "    if( p->usesStmtJournal",
            place: Before,
            text: "    if( pOp->p2 && PL_BT(pBt) && (rc = plWholeBegins(p, pBt))!=SQLITE_OK ) goto abort_due_to_error; /* [plait] */",
            why: "plWholeBegins opens a savepoint: the engine may refuse a statement after its \
                  first change, where SQLite knows of nothing that could",
        },
        Edit {
            section: "vdbe.c",
            anchor: "      rc = sqlite3VtabSavepoint(db, SAVEPOINT_BEGIN, p->iStatement-1);",
            place: Replace,
            text: "      rc = plVtabBegins(p); /* [plait] */",
            why: "plVtabBegins runs the replaced call and notes a refusal: a virtual table may \
                  write at a savepoint",
        },
        Edit {
            section: "vdbe.c",
            anchor: "        p->pc = (int)(pOp - aOp);",
            place: Replace,
            text: "        p->pc = plWholePaused(p, (int)(pOp - aOp)); /* [plait] */",
            why: "plWholePaused closes the savepoint at BUSY: the application and other statements \
                  have their turn before this one has written",
        },
        Edit {
            section: "vdbe.c",
            anchor: "  p->cacheCtr = (p->cacheCtr + 2)|1;",
            place: Before,
            text: "  if( p->bPlMiddle && (rc = plWholeRow(p))!=SQLITE_OK ) goto abort_due_to_error; /* [plait] */",
            why: "plWholeRow closes the savepoint when the statement has written all, before the \
                  application has its turn",
        },
        Edit {
            section: "vdbeapi.c",
            anchor: "    rc = sqlite3VdbeExec(p);",
            place: Before,
            text: "    p->bPlExec = 1; /* [plait] */",
            why: "a statement that is inside of another may end while it runs, or where the other \
                  one resets it",
        },
        Edit {
            section: "vdbeapi.c",
            anchor: "    rc = sqlite3VdbeExec(p);",
            place: After,
            text: "    p->bPlExec = 0; /* [plait] */",
            why: "the same",
        },
        Edit {
            section: "vdbeaux.c",
            anchor: "      rc = sqlite3VdbeCloseStatement(p, eStatementOp);",
            place: Replace,
            text: "      rc = plWholeEnds(p, eStatementOp); /* [plait] */",
            why: "plWholeEnds runs the replaced call and then ends the savepoint of a statement \
                  inside of a transaction",
        },
        Edit {
            section: "vdbeaux.c",
            anchor: "  p->usesStmtJournal = (u8)(pParse->isMultiWrite && pParse->mayAbort);",
            place: Replace,
            text: "  p->usesStmtJournal = (u8)((pParse->isMultiWrite && pParse->mayAbort) || plWritesSeveral(pParse)); /* [plait] */",
            why: "a statement that writes to several files, a concurrent one among them, has \
                  SQLite's own journal, because one of the files may be refused beside the others",
        },
        Edit {
            section: "vdbe.c",
            anchor: "  if( p->expired==1 ){",
            place: Replace,
            text: "  if( p->expired==1 || p->bPlEnded ){ /* [plait] */",
            why: "a statement whose transaction was rolled back in its middle opens no cursor; \
                  SQLite lets it write on, outside of any transaction",
        },
        Edit {
            section: "vdbe.c",
            anchor: "    rc = pModule->xUpdate(pVtab, nArg, apArg, &rowid);",
            place: Before,
            text: "    if( p->bPlEnded ){ rc = SQLITE_ABORT_ROLLBACK; goto abort_due_to_error; } /* [plait] */\n    db->nPlInner++; /* [plait] */\n    db->nPlUpdate++; /* [plait] */",
            why: "a statement whose transaction was rolled back in its middle calls no xUpdate; \
                  and a virtual table may remember what it is told",
        },
        Edit {
            section: "vdbe.c",
            anchor: "    rc = pModule->xUpdate(pVtab, nArg, apArg, &rowid);",
            place: After,
            text: "    db->nPlUpdate--; /* [plait] */",
            why: "a virtual table may put a code of its own in the place of the engine's",
        },
    ],
};

const RUN: Concern = Concern {
    title: "how a statement is run",
    purpose: "A single write may be tried beside others and is run again in its turn if that \
              fails, and a statement that finds the schema changed is prepared anew more often.",
    look_at: "`sqlite3_step`, `sqlite3Step`; what the operations do that `csrc/beside.c` lists",
    edits: &[
        Edit {
            section: "vdbeapi.c",
            anchor: "  while( (rc = sqlite3Step(v))==SQLITE_SCHEMA",
            place: Replace,
            text: "  while( (rc = plRunStatement(v))==SQLITE_SCHEMA /* [plait] */",
            why: "plRunStatement may try a single write beside others, and runs it again in its \
                  turn if that fails",
        },
        Edit {
            section: "vdbeapi.c",
            anchor: "         && cnt++ < SQLITE_MAX_SCHEMA_RETRY ){",
            place: Replace,
            text: "         && cnt++ < plSchemaRetries(db) ){ /* [plait] */",
            why: "a statement that is prepared anew waits its turn again, and may find another \
                  change of the schema each time",
        },
    ],
};

const REGISTERS: Concern = Concern {
    title: "registers of a statement",
    purpose: "Small allocations of registers stay with them from one run of a prepared statement \
              to the next (`csrc/registers.c`).",
    look_at: "`releaseMemArray`, which `plEmptyRegisters` follows; `allocateCursor`; who else calls \
              `closeAllCursors`, or takes a register of a statement that begins for one without an \
              allocation",
    edits: &[
        Edit {
            section: "vdbeaux.c",
            anchor: "  releaseMemArray(p->aMem, p->nMem);",
            place: Replace,
            text: "  plEmptyRegisters(p); /* [plait] */",
            why: "plEmptyRegisters empties registers as the replaced call does, and lets them keep \
                  small allocations",
        },
        Edit {
            section: "vdbeaux.c",
            anchor: "    releaseMemArray(p->aVar, p->nVar);",
            place: After,
            text: "    releaseMemArray(p->aMem, p->nMem); /* [plait] */",
            why: "what registers have kept is freed with the statement",
        },
    ],
};

const INSIDE: Concern = Concern {
    title: "a statement inside of another",
    purpose: "A statement that another one runs outside of a transaction (PRAGMA optimize) waits \
              its turn with nothing read.",
    look_at: "OP_SqlExec, and who codes it: what of a cursor opened before it is used behind it",
    edits: &[Edit {
        section: "vdbe.c",
        anchor: "  rc = sqlite3_exec(db, pOp->p4.z, 0, 0, &zErr);",
        place: Replace,
        text: "  rc = plExecInside(p, pOp->p4.z, &zErr); /* [plait] */",
        why: "plExecInside ends what PRAGMA optimize is reading before it runs ANALYZE in its \
                  middle, and begins it again",
    }],
};
