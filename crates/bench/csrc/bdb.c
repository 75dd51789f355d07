/*
** Berkeley DB's methods as functions.
**
** Its handles are structures of function pointers whose layout only db.h knows, so the calls through them are written
** here and everything else is left to src/engines/bdb. Nothing in this file refers to a symbol of the library: handles
** are made by the caller, with db_env_create and db_create as found at run time.
**
** Every function answers what Berkeley DB answers: 0, an errno above 0, or one of its own codes below 0.
*/
#include <errno.h>
#include <sys/types.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <db.h>

#if DB_VERSION_MAJOR != 5 || DB_VERSION_MINOR != 3
# error "db.h is not that of Berkeley DB 5.3"
#endif

#define GIGABYTE ((uint64_t)1 << 30)

/* Memory of the caller that values are copied to. It grows by realloc and is released by bench_bdb_release. */
struct bench_bdb_buffer {
  void *data;
  uint32_t size;      /* Of the last value */
};

/* How an environment is opened. Zero leaves a size as Berkeley DB has it. */
struct bench_bdb_environment {
  uint64_t cache_bytes;
  uint32_t log_buffer_bytes;
  uint32_t max_locks;         /* Also of lockers and locked objects */
  uint32_t sync;              /* 0 sync, 1 write_nosync, 2 nosync */
  uint32_t recover;           /* 0 none, 1 alone, 2 register */
};

/* The codes that mean something to the caller. */
const int bench_bdb_not_found = DB_NOTFOUND;
const int bench_bdb_deadlock = DB_LOCK_DEADLOCK;

/* Makes or joins an environment with transactions. */
int bench_bdb_env_open(
  DB_ENV *env,
  const char *home,
  const struct bench_bdb_environment *how
){
  uint32_t flags = DB_CREATE | DB_INIT_LOCK | DB_INIT_LOG | DB_INIT_MPOOL | DB_INIT_TXN | DB_THREAD;
  int rc = 0;
  if( how->cache_bytes ){
    rc = env->set_cachesize(env, (uint32_t)(how->cache_bytes / GIGABYTE), (uint32_t)(how->cache_bytes % GIGABYTE), 1);
  }
  if( rc==0 && how->log_buffer_bytes ) rc = env->set_lg_bsize(env, how->log_buffer_bytes);
  if( rc==0 && how->max_locks ) rc = env->set_lk_max_locks(env, how->max_locks);
  if( rc==0 && how->max_locks ) rc = env->set_lk_max_lockers(env, how->max_locks);
  if( rc==0 && how->max_locks ) rc = env->set_lk_max_objects(env, how->max_locks);
  if( rc==0 ) rc = env->set_lk_detect(env, DB_LOCK_DEFAULT);
  if( rc==0 && how->sync==1 ) rc = env->set_flags(env, DB_TXN_WRITE_NOSYNC, 1);
  if( rc==0 && how->sync==2 ) rc = env->set_flags(env, DB_TXN_NOSYNC, 1);
  if( how->recover==1 ) flags |= DB_RECOVER;
  if( how->recover==2 ) flags |= DB_RECOVER | DB_REGISTER;
  return rc ? rc : env->open(env, home, flags, 0);
}

/* Reads back what an open environment has. */
int bench_bdb_env_settings(DB_ENV *env, struct bench_bdb_environment *has){
  uint32_t gigabytes, bytes, flags;
  int caches, rc;
  memset(has, 0, sizeof *has);
  rc = env->get_cachesize(env, &gigabytes, &bytes, &caches);
  if( rc==0 ) rc = env->get_lg_bsize(env, &has->log_buffer_bytes);
  if( rc==0 ) rc = env->get_lk_max_locks(env, &has->max_locks);
  if( rc==0 ) rc = env->get_flags(env, &flags);
  if( rc ) return rc;
  has->cache_bytes = gigabytes * GIGABYTE + bytes;
  has->sync = (flags & DB_TXN_NOSYNC) ? 2 : (flags & DB_TXN_WRITE_NOSYNC) ? 1 : 0;
  rc = env->get_open_flags(env, &flags);
  has->recover = (flags & DB_REGISTER) ? 2 : (flags & DB_RECOVER) ? 1 : 0;
  return rc;
}

int bench_bdb_env_close(DB_ENV *env){
  return env->close(env, 0);
}

/*
** Opens or makes a btree. Without an environment the cache is the table's own; without a file name the table is
** temporary and spills to a file of Berkeley DB's choice.
*/
int bench_bdb_open(
  DB *db,
  const char *file,
  int transactional,
  uint32_t page_bytes,
  uint64_t cache_bytes
){
  uint32_t flags = DB_CREATE | (transactional ? DB_AUTO_COMMIT | DB_THREAD : 0);
  int rc = 0;
  if( cache_bytes ){
    rc = db->set_cachesize(db, (uint32_t)(cache_bytes / GIGABYTE), (uint32_t)(cache_bytes % GIGABYTE), 1);
  }
  if( rc==0 && page_bytes ) rc = db->set_pagesize(db, page_bytes);
  return rc ? rc : db->open(db, NULL, file, NULL, DB_BTREE, flags, 0644);
}

/* Reads back a table's page size and, if asked, its own cache, which one in an environment has not. */
int bench_bdb_settings(DB *db, uint32_t *page_bytes, uint64_t *cache_bytes){
  uint32_t gigabytes, bytes;
  int caches;
  int rc = db->get_pagesize(db, page_bytes);
  if( rc || cache_bytes==NULL ) return rc;
  rc = db->get_cachesize(db, &gigabytes, &bytes, &caches);
  if( rc==0 ) *cache_bytes = gigabytes * GIGABYTE + bytes;
  return rc;
}

/* Writes all pages and closes; the handle is gone whatever is answered. */
int bench_bdb_close(DB *db){
  return db->close(db, 0);
}

int bench_bdb_begin(DB_ENV *env, DB_TXN **txn){
  return env->txn_begin(env, NULL, txn, 0);
}

/* The transaction is gone whatever is answered. */
int bench_bdb_commit(DB_TXN *txn){
  return txn->commit(txn, 0);
}

/* The transaction is gone whatever is answered. */
int bench_bdb_abort(DB_TXN *txn){
  return txn->abort(txn);
}

/* A key or value that is only read. */
static DBT input(const void *data, uint32_t size){
  DBT dbt;
  memset(&dbt, 0, sizeof dbt);
  dbt.data = (void*)data;
  dbt.size = size;
  return dbt;
}

/* A place that a value is copied to. */
static DBT output(struct bench_bdb_buffer *buffer){
  DBT dbt;
  memset(&dbt, 0, sizeof dbt);
  dbt.data = buffer->data;
  dbt.flags = DB_DBT_REALLOC;
  return dbt;
}

static void keep(struct bench_bdb_buffer *buffer, const DBT *dbt){
  buffer->data = dbt->data;
  buffer->size = dbt->size;
}

/* Looks a key up; with for_update it locks what it finds as a write would. */
int bench_bdb_get(
  DB *db,
  DB_TXN *txn,
  const void *key, uint32_t key_size,
  struct bench_bdb_buffer *value,
  int for_update
){
  DBT k = input(key, key_size);
  DBT v = output(value);
  int rc = db->get(db, txn, &k, &v, for_update ? DB_RMW : 0);
  keep(value, &v);
  return rc;
}

/* Gives a key a value, whether it has one or not. */
int bench_bdb_put(
  DB *db,
  DB_TXN *txn,
  const void *key, uint32_t key_size,
  const void *value, uint32_t value_size
){
  DBT k = input(key, key_size);
  DBT v = input(value, value_size);
  return db->put(db, txn, &k, &v, 0);
}

int bench_bdb_delete(DB *db, DB_TXN *txn, const void *key, uint32_t key_size){
  DBT k = input(key, key_size);
  return db->del(db, txn, &k, 0);
}

int bench_bdb_cursor_open(DB *db, DB_TXN *txn, DBC **cursor){
  return db->cursor(db, txn, cursor, 0);
}

int bench_bdb_cursor_close(DBC *cursor){
  return cursor->close(cursor);
}

/* Goes to the first row whose key is not below the given one, which is copied: Berkeley DB answers in its place. */
int bench_bdb_cursor_seek(
  DBC *cursor,
  const void *from, uint32_t from_size,
  struct bench_bdb_buffer *key,
  struct bench_bdb_buffer *value
){
  DBT k, v;
  int rc;
  void *copy = realloc(key->data, from_size ? from_size : 1);
  if( copy==NULL ) return ENOMEM;
  key->data = copy;
  if( from_size ) memcpy(copy, from, from_size);
  k = output(key);
  k.size = from_size;
  v = output(value);
  rc = cursor->get(cursor, &k, &v, DB_SET_RANGE);
  keep(key, &k);
  keep(value, &v);
  return rc;
}

/* Goes to the next row, or to the first one if the cursor has not been anywhere. */
int bench_bdb_cursor_next(DBC *cursor, struct bench_bdb_buffer *key, struct bench_bdb_buffer *value){
  DBT k = output(key);
  DBT v = output(value);
  int rc = cursor->get(cursor, &k, &v, DB_NEXT);
  keep(key, &k);
  keep(value, &v);
  return rc;
}

void bench_bdb_release(struct bench_bdb_buffer *buffer){
  free(buffer->data);
  buffer->data = NULL;
}
