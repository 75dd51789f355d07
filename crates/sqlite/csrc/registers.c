/*
** registers.c - what the registers of a prepared statement keep from one run to the next.
**
** When a statement ends SQLite frees what its registers have allocated: a cursor each, and buffers
** for text and records. The next run allocates the same again. For a statement that reads or
** changes one row that is a tenth of its instructions: an allocation and its end take SQLite's
** statistics mutex twice. So small allocations stay with their registers, which use them again as
** they would within a loop of one run.
**
** Invariants
**  - KEPT-1 Between two runs a register has no value (MEM_Undefined), and an allocation of at most
**    PL_KEPT_BYTES, at which its z points: allocateCursor() expects that.
**  - KEPT-2 sqlite3VdbeClearObject() frees what is left, after sqlite3VdbeReset() and before the
**    registers themselves; and counts it for SQLITE_DBSTATUS_STMT_USED.
**
** So it is in every journal mode: it spares a statement of one row more than all other edits add to it
** (docs/benchmarks/notes.md).
*/

/* A cursor of a table with some twenty columns has as much. */
#define PL_KEPT_BYTES 768

/* In place of releaseMemArray() at the end of a run. */
static void plEmptyRegisters(Vdbe *v){
  Mem *p = v->aMem;
  Mem *pEnd = &p[v->nMem];
  for(; p<pEnd; p++){
    if( p->flags & (MEM_Agg|MEM_Dyn) ){
      sqlite3VdbeMemRelease(p);
      p->flags = MEM_Undefined;
    }else if( p->szMalloc ){
      if( p->szMalloc>PL_KEPT_BYTES ){
        sqlite3DbNNFreeNN(v->db, p->zMalloc);
        p->szMalloc = 0;
      }else{
        p->z = p->zMalloc;
      }
      p->flags = MEM_Undefined;
    }
#ifdef SQLITE_DEBUG
    else{
      p->flags = MEM_Undefined;
    }
#endif
  }
}
