/*
** opener.c - the hidden connection for programs that are linked with this library, and that work on
** a copy of a base without a session (base_opener() in src/lib.rs).
*/
const PlBaseOps *pl_shim_base_ops(void){
  return sqlite3_initialize()==SQLITE_OK ? &plBaseOps : 0;
}
