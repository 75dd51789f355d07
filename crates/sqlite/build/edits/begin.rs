//! BEGIN CONCURRENT, and what a plain BEGIN means.

use super::Place::{After, Before, Replace};
use super::{Concern, Edit};

/// By concern.
pub(super) const CONCERNS: &[Concern] = &[BEGIN];

const BEGIN: Concern = Concern {
    title: "BEGIN",
    purpose: "The parser takes BEGIN CONCURRENT, and a plain BEGIN means what the program has \
              chosen.",
    look_at: "the loop of the parser in `sqlite3RunParser`, `sqlite3BeginTransaction`, \
              OP_AutoCommit and its P3",
    edits: &[
        Edit {
            section: "tokenize.c",
            anchor: "    sqlite3Parser(pEngine, tokenType, pParse->sLastToken);",
            place: Before,
            text: "    if( tokenType==TK_ID && lastTokenParsed==TK_BEGIN ) tokenType = plBeginToken(zSql, n); /* [plait] */",
            why: "plBeginToken lets CONCURRENT behind BEGIN parse as DEFERRED; elsewhere the word \
                  stays an identifier",
        },
        Edit {
            section: "build.c",
            anchor: "  if( type!=TK_DEFERRED ){",
            place: Before,
            text: "  type = plBeginType(pParse, type); /* [plait] */",
            why: "plBeginType makes BEGIN IMMEDIATE of a plain BEGIN where the program has chosen \
                  that",
        },
        Edit {
            section: "build.c",
            anchor: "  sqlite3VdbeAddOp0(v, OP_AutoCommit);",
            place: Replace,
            text: "  sqlite3VdbeAddOp3(v, OP_AutoCommit, 0, 0, type==TK_DEFERRED ? plBeginIsConcurrent(pParse) : 0); /* [plait] */",
            why: "P3 of the opcode of BEGIN says what was written: 1 CONCURRENT, 2 a plain BEGIN, \
                  0 anything else",
        },
        Edit {
            section: "vdbe.c",
            anchor: "    sqlite3CloseSavepoints(db);",
            place: After,
            text: "    plAutoCommitDone(db, pOp->p3); /* [plait] */",
            why: "plAutoCommitDone notes that BEGIN, COMMIT or ROLLBACK has worked, and with P3 \
                  which BEGIN it was",
        },
    ],
};
