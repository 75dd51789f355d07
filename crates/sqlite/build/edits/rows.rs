//! Rows: the rowid that a new one gets, and what of the others a transaction has read.

use super::Place::{After, Before, Replace};
use super::{Concern, Edit};

/// By concern.
pub(super) const CONCERNS: &[Concern] = &[ROWIDS, AUTOINCREMENT, HOOKS, READS, INDEX_KEY];

const ROWIDS: Concern = Concern {
    title: "automatic rowids",
    purpose: "New rows get numbers from a counter that all transactions share, without reading the \
              end of the table.",
    look_at: "OP_NewRowid",
    edits: &[
        Edit {
            section: "vdbe.c",
            anchor: "    if( !pC->useRandomRowid ){",
            place: Before,
            text: "    if( PL_CSR(pC->uc.pCursor) ){ rc = plNewRowidCandidate(pC, &v); if( rc ) goto abort_due_to_error; }else /* [plait] */",
            why: "plNewRowidCandidate finds the largest visible rowid plus one without reading the \
                  end of the table into the read set; past the largest integer it sets \
                  useRandomRowid",
        },
        Edit {
            section: "vdbe.c",
            anchor: "    if( pC->useRandomRowid ){",
            place: Before,
            text: "    if( PL_CSR(pC->uc.pCursor) ){ rc = plNewRowid(pC, pOp->p3 ? pMem : 0, &v); if( rc ) goto abort_due_to_error; } /* [plait] */",
            why: "plNewRowid takes a number not below the candidate from the shared counter, and \
                  stores it in the register of the sequence for AUTOINCREMENT",
        },
    ],
};

const AUTOINCREMENT: Concern = Concern {
    title: "cursors of AUTOINCREMENT",
    purpose: "The two cursors on sqlite_sequence are marked, so that its row is no hot one.",
    look_at: "`sqlite3AutoincrementBegin`, `autoIncrementEnd`; OPFLAG_BULKCSR on a table's cursor",
    edits: &[
        Edit {
            section: "insert.c",
            anchor: "    sqlite3OpenTable(pParse, 0, p->iDb, pDb->pSchema->pSeqTab, OP_OpenRead);",
            place: After,
            text: "    plMarkSequenceCursor(v); /* [plait] */",
            why: "plMarkSequenceCursor sets OPFLAG_BULKCSR on the cursor just coded, which reaches \
                  the b-tree as a hint: what AUTOINCREMENT itself reads of the sequence conflicts \
                  with nothing",
        },
        Edit {
            section: "insert.c",
            anchor: "    sqlite3OpenTable(pParse, 0, p->iDb, pDb->pSchema->pSeqTab, OP_OpenWrite);",
            place: After,
            text: "    plMarkSequenceCursor(v); /* [plait] */",
            why: "the hint makes a maximum of what AUTOINCREMENT writes, instead of a hot row",
        },
    ],
};

const HOOKS: Concern = Concern {
    title: "the row that hooks are told of",
    purpose: "OP_Delete stands on the row that it deletes when hooks ask for it.",
    look_at: "OP_Delete: what it asks the cursor for before it deletes; `sqlite3BtreeCursorPin` \
              and who looks at the flag",
    edits: &[Edit {
        section: "vdbe.c",
        anchor: "    if( (pOp->p5 & OPFLAG_SAVEPOSITION)!=0 && pC->isTable ){",
        place: Before,
        text: "    if( PL_CSR(pC->uc.pCursor) ){ rc = sqlite3VdbeCursorRestore(pC); if( rc ) goto abort_due_to_error; } /* [plait] */",
        why: "a delete from one of the table's indexes just before may have made the \
                  transaction exclusive, which moves every cursor; the hooks get rowid and old \
                  values from the cursor of OP_Delete",
    }],
};

const READS: Concern = Concern {
    title: "what a seek, a unique check and FTS5 have read",
    purpose: "A transaction notes what it has read where SQLite does not ask a cursor for it.",
    look_at: "OP_SeekGE and its kin, OP_NoConflict, `sqlite3Fts5IndexReset`; what FTS5 remembers \
              across transactions",
    edits: &[
        Edit {
            section: "vdbe.c",
            anchor: "seek_not_found:",
            place: After,
            text: "  if( PL_STEP(pC->uc.pCursor) ) plSeekLanded(pC->uc.pCursor, res==0); /* [plait] */",
            why: "OP_SeekGE and its kin have read that a row is there, or that none is, even if \
                  nothing looks at the row",
        },
        Edit {
            section: "vdbe.c",
            anchor: "  alreadyExists = (pC->seekResult==0);",
            place: Before,
            text: "  if( pOp->opcode==OP_NoConflict && PL_STEP(pC->uc.pCursor) ) plUniqueProbed(pC->uc.pCursor, &r); /* [plait] */",
            why: "a unique check looks at the index before it finds a NULL in the key, and then \
                  ignores what it has seen",
        },
        Edit {
            section: "fts5.c",
            anchor: "  if( fts5IndexDataVersion(p)!=p->iStructVersion ){",
            place: Replace,
            text: "  if( fts5IndexDataVersion(p)!=p->iStructVersion || plNotesReads(p->pConfig->db, p->pConfig->zDb) ){ /* [plait] */",
            why: "FTS5 keeps the list of its segments across transactions as long as data_version \
                  stays, and a transaction that searches must have read it",
        },
    ],
};

const INDEX_KEY: Concern = Concern {
    title: "an index entry under another value of its expression",
    purpose: "The search for an index entry whose expression has another value now looks at the \
              whole index where it begins in a gap.",
    look_at: "`sqlite3VdbeFindIndexKey`, and where a seek that has found nothing may leave its \
              cursor",
    edits: &[Edit {
        section: "vdbeaux.c",
        anchor: "    for(ii=0; sqlite3BtreeEof(pCur)==0 && ii<BTREE_FDK_RANGE; ii++){",
        place: Before,
        text: "    if( sqlite3BtreeEof(pCur) ) rc = SQLITE_DONE; /* [plait] from the first entry on */",
        why: "where a seek has found nothing SQLite's cursor is on an entry, ours in a gap, \
                  before which there may be none: then the search begins at the first entry",
    }],
};
