//! What a program is told, and what it may ask for.

use super::Place::{After, Before, Replace};
use super::{Concern, Edit};

/// By concern.
pub(super) const CONCERNS: &[Concern] = &[ERRORS, DATA_VERSION, PRAGMAS, SQL, CONNECTIONS];

const ERRORS: Concern = Concern {
    title: "error texts",
    purpose: "A call that failed in the engine says why.",
    look_at: "`sqlite3_errmsg`, `sqlite3InitOne`",
    edits: &[
        Edit {
            section: "vdbe.c",
            anchor: "    sqlite3VdbeError(p, \"%s\", sqlite3ErrStr(rc));",
            place: Replace,
            text: "    sqlite3VdbeError(p, \"%s\", plErrStr(db, rc)); /* [plait] */",
            why: "a statement that failed in the engine says why; plErrStr falls back to \
                  sqlite3ErrStr",
        },
        Edit {
            section: "main.c",
            anchor: "      z = sqlite3ErrStr(db->errCode);",
            place: Replace,
            text: "      z = plErrStr(db, db->errCode); /* [plait] */",
            why: "COMMIT keeps no text of its own, so that sqlite3_errmsg asks for it",
        },
        Edit {
            section: "main.c",
            anchor: "      sqlite3ErrorWithMsg(db, db->errCode, sqlite3ErrStr(db->errCode));",
            place: Replace,
            text: "      sqlite3ErrorWithMsg(db, db->errCode, \"%s\", plErrStr(db, db->errCode)); /* [plait] */",
            why: "COMMIT keeps no text of its own, so that sqlite3_errmsg16 asks for it",
        },
        Edit {
            section: "prepare.c",
            anchor: "      sqlite3SetString(pzErrMsg, db, sqlite3ErrStr(rc));",
            place: Replace,
            text: "      sqlite3SetString(pzErrMsg, db, plErrStr(db, rc)); /* [plait] */",
            why: "the first statement on a file opens it, which may fail on a missing or foreign \
                  log",
        },
    ],
};

const DATA_VERSION: Concern = Concern {
    title: "data version",
    purpose: "The data version counts commits that are not merged.",
    look_at: "SQLITE_FCNTL_DATA_VERSION, OP_ReadCookie",
    edits: &[
        Edit {
            section: "main.c",
            anchor: "      *(unsigned int*)pArg = sqlite3PagerDataVersion(pPager);",
            place: Replace,
            text: "      rc = plDataVersion(pBtree, pPager, (unsigned int*)pArg); /* [plait] */\n      if( rc==SQLITE_OK ) /* [plait] */",
            why: "SQLITE_FCNTL_DATA_VERSION sees commits that are not merged; the line below sets \
                  rc to SQLITE_OK, and must not if plDataVersion has failed",
        },
        Edit {
            section: "vdbe.c",
            anchor: "  sqlite3BtreeGetMeta(db->aDb[iDb].pBt, iCookie, (u32 *)&iMeta);",
            place: Replace,
            text: "  rc = plReadMeta(db->aDb[iDb].pBt, iCookie, (u32 *)&iMeta); /* [plait] */\n  if( rc ) goto abort_due_to_error; /* [plait] */",
            why: "PRAGMA data_version sees commits that are not merged; plReadMeta falls back to \
                  the replaced call",
        },
    ],
};

const PRAGMAS: Concern = Concern {
    title: "PRAGMA plait_...",
    purpose: "A program sets and asks for what is ours by pragmas.",
    look_at: "SQLITE_FCNTL_PRAGMA: aFcntl[1] is the name, [2] the argument, [0] the result, and \
              SQLite leaves [3] 0",
    edits: &[
        Edit {
            section: "pragma.c",
            anchor: "  rc = sqlite3_file_control(db, zDb, SQLITE_FCNTL_PRAGMA, (void*)aFcntl);",
            place: Replace,
            text: "  rc = plPragma(db, zDb, aFcntl); /* [plait] */",
            why: "plPragma answers pragmas that begin with plait_ by the contract of \
                  SQLITE_FCNTL_PRAGMA, and falls back to the replaced call",
        },
        Edit {
            section: "pragma.c",
            anchor: "    returnSingleText(v, aFcntl[0]);",
            place: Replace,
            text: "    if( aFcntl[3] ) returnSingleInt(v, plPragmaNumber(aFcntl[3])); /* [plait] */\n    else returnSingleText(v, aFcntl[0]); /* [plait] */",
            why: "a result that plPragma has called a number, by aFcntl[3], is an integer as those \
                  of other pragmas are",
        },
    ],
};

const SQL: Concern = Concern {
    title: "SQL functions and virtual tables",
    purpose: "Functions are built in, and a virtual table is made when a connection first asks for \
              it.",
    look_at: "`sqlite3RegisterBuiltinFunctions`; `sqlite3LocateTable`, where tables of pragmas are \
              made",
    edits: &[
        Edit {
            section: "func.c",
            anchor: "  sqlite3RegisterDateTimeFunctions();",
            place: After,
            text: "  plRegisterFunctions(); /* [plait] */",
            why: "plRegisterFunctions makes the SQL functions, once for all connections",
        },
        Edit {
            section: "build.c",
            anchor: "      if( pMod==0 && sqlite3_strnicmp(zName, \"pragma_\", 7)==0 ){",
            place: Before,
            text: "      if( pMod==0 && sqlite3_strnicmp(zName, \"plait_\", 6)==0 ) pMod = plTableRegister(db, zName); /* [plait] */",
            why: "plTableRegister makes a virtual table when a connection first asks for it",
        },
    ],
};

const CONNECTIONS: Concern = Concern {
    title: "connections that are opened",
    purpose: "The library notes what a program opens, and an application's automatic extensions do \
              not meet hidden connections.",
    look_at: "`openDatabase` from the built-in extensions on",
    edits: &[
        Edit {
            section: "main.c",
            anchor: "static int (*const sqlite3BuiltinExtensions[])(sqlite3*) = {",
            place: After,
            text: "  plOpened, /* [plait] */",
            why: "plOpened reports what a program opens",
        },
        Edit {
            section: "main.c",
            anchor: "    sqlite3AutoLoadExtensions(db);",
            place: Replace,
            text: "    if( (db->openFlags & PL_OPEN_BASE)==0 ) sqlite3AutoLoadExtensions(db); /* [plait] */",
            why: "on a hidden connection, which is opened while its database is, the SQL of an \
                  automatic extension would wait for that opening, and its refusal would end it",
        },
    ],
};
