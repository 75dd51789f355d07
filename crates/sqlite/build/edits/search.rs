//! How fast a search in a b-tree is.

use super::Place::{After, Replace};
use super::{Concern, Edit};

/// By concern.
pub(super) const CONCERNS: &[Concern] = &[SEARCH];

const SEARCH: Concern = Concern {
    title: "speed of a search",
    purpose: "A search begins where the row probably is, fetches ahead what it looks at next, and \
              compares keys of bytes in a loop of their own.",
    look_at: "the loops of `sqlite3BtreeTableMoveto` and `sqlite3BtreeIndexMoveto`; \
              `sqlite3VdbeFindCompare` and `vdbeRecordCompareString`, of which `csrc/compare.c` is \
              the twin for bytes",
    edits: &[
        Edit {
            section: "btree.c",
            anchor: "    idx = upr>>(1-biasRight); /* idx = biasRight ? upr : (lwr+upr)/2; */",
            place: Replace,
            text: "    idx = biasRight ? upr : PL_MET(pCur->pBtree->db) ? plFirstLook(pCur, pPage, intKey, upr) : upr>>1; /* [plait] */",
            why: "plFirstLook lets a search on a leaf without holes begin where the row is; the \
                  loop below finds it from any cell",
        },
        Edit {
            section: "btree.c",
            anchor: "      int nCell;  /* Size of the pCell cell in bytes */",
            place: After,
            text: "      if( PL_MET(pCur->pBtree->db) ) plFetchNext(pPage, lwr, idx, upr); /* [plait] */",
            why: "plFetchNext fetches the two cells of which the search needs one next",
        },
        Edit {
            section: "vdbeaux.c",
            anchor: "    testcase( flags & MEM_Blob );",
            place: After,
            text: "    if( PL_MET(p->pKeyInfo->db) && (flags & (MEM_Real|MEM_IntReal|MEM_Null|MEM_Str|MEM_Zero))==0 ) return plFindCompareBlob(p); /* [plait] */",
            why: "plFindCompareBlob is a comparison for keys that begin with bytes, as SQLite has \
                  them for integers and for text",
        },
    ],
};
