//! The key-value API.

use super::Place::{After, Before};
use super::{Concern, Edit};

/// By concern.
pub(super) const CONCERNS: &[Concern] = &[MAPS, HELD];

const MAPS: Concern = Concern {
    title: "the key-value API",
    purpose: "Maps are part of SQLite's translation unit and are built as blob handles are.",
    look_at: "`sqlite3_blob_open`; OP_Transaction (also `csrc/map_single.c`), OP_Function, \
              OP_Insert, OP_IdxInsert, OP_Delete, OP_SeekGE and its kin, OP_MakeRecord, of which \
              `csrc/map_*.c` repeat what they do to cursors and records",
    edits: &[Edit {
        section: "vdbeblob.c",
        anchor: "#endif /* #ifndef SQLITE_OMIT_INCRBLOB */",
        place: After,
        text: "#include \"map.c\" /* [plait] */",
        why: "maps are built like incremental blob handles: they see what the machine's own \
                  API files see, and call what later ones define",
    }],
};

const HELD: Concern = Concern {
    title: "maps that keep their place",
    purpose: "A map goes on reading where its last read was, until something begins that must not \
              meet its cursors.",
    look_at: "new ways to begin a statement, to end a transaction, or to change pages without \
              either",
    edits: &[
        Edit {
            section: "vdbeapi.c",
            anchor: "      if( db->nVdbeActive==0 ){",
            place: Before,
            text: "      if( !p->bPlRead ) PL_LET_GO(db); /* [plait] */",
            why: "a statement begins: maps let go of their cursors, if there are any",
        },
        Edit {
            section: "btree.c",
            anchor: "static void btreeEndTransaction(Btree *p){",
            place: After,
            text: "  PL_LET_GO(p->db); /* [plait] */",
            why: "a transaction ends, by whatever way, and no cursor outlives it",
        },
        Edit {
            section: "backup.c",
            anchor: "  rc = p->rc;",
            place: Before,
            text: "  PL_LET_GO(p->pSrcDb); /* [plait] */\n  if( p->pDestDb ) PL_LET_GO(p->pDestDb); /* [plait] */",
            why: "a backup steps, which begins no statement: it may write over the pages of one \
                  database and make the other exclusive",
        },
        Edit {
            section: "main.c",
            anchor: "  for(i=0; rc==SQLITE_OK && i<db->nDb; i++){",
            place: Before,
            text: "  PL_LET_GO(db); /* [plait] */",
            why: "sqlite3_db_cacheflush leaves out pages that are in use",
        },
    ],
};
