/*
** plait.h - what libsqlite3 by Plait offers beyond sqlite3.h.
**
** The library is used like any other libsqlite3: include sqlite3.h, link with -lsqlite3. This header is
** needed by programs that use what Plait adds to C: tickets, the key-value API, and the version.
*/
#ifndef PLAIT_H
#define PLAIT_H

#ifndef SQLITE3_H
#include "sqlite3.h"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/*
** The version of Plait as a string such as "0.1.0".
**
**     printf("SQLite %s, Plait %s\n", sqlite3_libversion(), plait_version());
**
** The string is static: do not free it. May be called at any time, from any thread, without a connection
** and before sqlite3_initialize(). A program that must also run on other builds of SQLite can
** look the symbol up with dlsym(), or ask "SELECT plait_version()", which other builds answer with
** "no such function".
*/
SQLITE_API const char *plait_version(void);

/*
** ==================================================================================================
** Tickets: which commits are on disk, without waiting for the disk in each COMMIT.
**
** Under PRAGMA synchronous=NORMAL a commit returns when it is safe from the death of processes, but not from that of the
** machine. Its ticket is a number; commits reach the disk in the order of their tickets. So a program with one thread can keep
** thousands of commits in flight and answer each client when its ticket has been passed:
**
**     plait_notify_fd(db, "main", &fd);               once; fd goes into poll(), epoll or the event loop
**     ... PRAGMA synchronous=NORMAL ...
**     sqlite3_exec(db, "INSERT ...", 0, 0, 0);        for each request: remember its ticket
**     plait_ticket(db, "main", &ticket);
**     ...
**     read(fd, &n, 8);                                when fd is readable: empty it first,
**     plait_durable(db, "main", &durable);            then answer every request whose ticket is <= durable
**
** zSchema is "main", which NULL means too, or the name of an attached database; each file has tickets of its own. There are tickets
** in journal_mode=concurrent only: elsewhere the calls fail with SQLITE_ERROR and a text. All four are SQL functions too, so
** that any driver can use them: plait_ticket([schema]), plait_durable([schema]), plait_wait(ticket [, ms [, schema]]), which answers 1
** or 0, and plait_notify_fd([schema]).
**
** Results are codes of SQLite; after a failure sqlite3_errmsg() has the text. Out-arguments are set on success only; NULL for one is
** SQLITE_MISUSE. Threads: as for any call with this connection.
**
** SESSIONS. Tickets are compared with each other and with plait_durable() of the same file, by all connections and processes that
** have it open. They are for a program that runs. Once all connections are closed, or the machine has failed, a ticket from
** before says nothing: plait_wait() refuses it, and only the data can tell whether its commit is there. So it is
** when the file leaves the mode, and comes back to it.
**
** REPLICAS. In a database that follows a primary (docs/sql.md, On a replica) tickets are the primary's: plait_wait() waits until
** the commit is in the replica, plait_ticket() and plait_durable() answer the newest that is.
*/

/*
** The ticket of this connection's last commit: of a transaction of any kind, schema changes and bulk loads among them. Before its first one, the
** ticket that stands for what was there when it joined the session: what it reads later may be newer. It is known as soon as COMMIT has returned, and does not change until the next one.
** A connection that has been alone so far becomes a member of a session by this call, which fails inside a transaction that
** it began alone; call it, or plait_notify_fd(), once after opening.
*/
SQLITE_API int plait_ticket(sqlite3 *db, const char *zSchema, sqlite3_int64 *piTicket);

/*
** Every commit, of whichever connection, whose ticket is at most this is on disk. 0 until that is known of any. It never goes back. It costs no system call, and starts
** no sync: it moves when somebody commits under FULL, calls plait_wait(), has a descriptor of plait_notify_fd(), or merges.
*/
SQLITE_API int plait_durable(sqlite3 *db, const char *zSchema, sqlite3_int64 *piTicket);

/*
** Waits until the commit of a ticket is on disk, and all before it; leads the sync if nobody does, for all who wait. After ms
** milliseconds *pbDurable becomes 0, else 1; a sync that this call leads is not given up, so that it may take longer. 0 does not
** wait, and a negative ms has no end. Under FULL every commit has been waited for when COMMIT returns.
**
** SQLITE_MISUSE: the ticket was not given by this file, or by an earlier session. SQLITE_INTERRUPT: sqlite3_interrupt() while it waited for
** others. SQLITE_IOERR: a write or sync of the log has failed, and whether the commit is on disk is not known; all
** connections have to be closed, and what is there can be read then.
*/
SQLITE_API int plait_wait(sqlite3 *db, const char *zSchema, sqlite3_int64 iTicket, int ms, int *pbDurable);

/*
** A descriptor, an eventfd, that becomes readable when plait_durable() has moved or the log has failed. Read its eight bytes, then look at
** plait_durable(). It does not block and is closed on exec; it is the caller's, who closes it with close(). Each call gives another one
** for the same counter, of which one should be read.
**
** From the first call on a thread of this process syncs what is committed, as long as this connection is open. Commits of this process
** set it off at once, those of others within 50 ms. It ends with the connection, or when
** the file leaves the mode: the descriptor becomes readable once more then, and never again. What was committed until then is not waited for.
** SQLITE_MISUSE: the program has configured SQLite without threads. SQLITE_IOERR, SQLITE_CANTOPEN: no descriptor or thread can be had.
*/
SQLITE_API int plait_notify_fd(sqlite3 *db, const char *zSchema, int *pFd);

/*
** ==================================================================================================
** Key-value API: get, put, delete, cursors and more on the tables of SQL.
**
** A map is an ordinary table of one key and one value. What plait_put() writes is a row that SELECT finds, in the same
** transaction; what INSERT wrote a line above is what plait_get() answers. It works in every journal mode, and for in-memory,
** temporary and attached databases.
**
**     plait_map *users;
**     plait_value key = plait_text("ada"), value;
**     plait_map_open(db, "main", "users", PLAIT_MAP_CREATE_TEXT, &users);
**     plait_put(users, key, plait_bytes("\x01\x02", 2));
**     if( plait_get(users, key, &value)==SQLITE_OK && value.type!=PLAIT_NONE ){
**       fwrite(value.data, 1, value.size, stdout);
**     }
**     plait_map_close(users);
**
** RESULTS. Every function returns a result code of SQLite, SQLITE_OK on success, and after a failure sqlite3_errmsg() of
** the connection has the text. Whether a row was there is no error: it is told through an argument, or by the type PLAIT_NONE.
** All out-arguments but values may be NULL when their answer is not wanted. They are set on success only. NULL where a pointer is
** needed is SQLITE_MISUSE; no text is set then.
**
** TRANSACTIONS. A call is one statement of the connection, as if it had been said in SQL, and everything that holds for
** statements holds for it. Outside of BEGIN ... COMMIT it is a transaction of its own, as durable as PRAGMA synchronous
** says, and serializable; a call that reads and then writes (compare and swap, add, append, insert, update, batch)
** takes the right to write before it reads, and so never returns SQLITE_BUSY_SNAPSHOT (unless a cursor or another statement of the
** connection is open: then it belongs to the snapshot of that one, as an UPDATE would). It may wait, as long as the busy timeout
** or handler allows, and then returns SQLITE_BUSY. Inside of a transaction it belongs to it: it sees what was
** written before, savepoints undo it, and it can fail where an SQL statement in its place would. A call that fails changes
** nothing; some failures (a full disk, SQLITE_IOERR, no memory, an interrupted write) roll the transaction back, as
** they do for SQL: ask sqlite3_get_autocommit().
**
** CHANGES. sqlite3_changes() and sqlite3_total_changes() count written and deleted rows. sqlite3_last_insert_rowid() is set by a new row of
** a table with rowids. Commit, rollback, WAL, update and preupdate hooks, sessions and the progress handler are called as for INSERT
** (the key was absent), UPDATE (it was present) and DELETE. A preupdate hook (or a session) makes writes slower. Tracing sees
** no text, but for tables that are written through SQL, see plait_map_open(). sqlite3_interrupt() works.
**
** THREADS. A map and its cursors belong to their connection and may be used by any thread that may use it; calls are
** serialized by the connection's mutex (and so useless from two threads at a time in SQLITE_OPEN_NOMUTEX). Answers in memory
** of the library stay only until the next call: threads that share a map must copy them under a lock of their own.
** From within a hook or function that a call on a map has started, that map answers SQLITE_MISUSE.
*/

/*
** A key or a value.
**
**     type             meaning
**     PLAIT_NONE       no row. In arguments: where it is said that a row may be asked to be absent
**     SQLITE_INTEGER   integer
**     SQLITE_FLOAT     real
**     SQLITE_TEXT      size bytes of UTF-8 at data, not terminated by a zero byte
**     SQLITE_BLOB      size bytes at data
**     SQLITE_NULL      values only
**
** In arguments data may be NULL if size is 0, and is read until the call returns. In answers it points into memory of the
** library: do not free it, and see each function for how long it stays. What stays until the next call may be an argument of that call.
** A negative size, another type, and a real that is not a number are SQLITE_MISUSE; more than sqlite3_limit(SQLITE_LIMIT_LENGTH) bytes
** are SQLITE_TOOBIG, in bounds and conditions too, and whether or not the value would have been needed: data is not read then.
**
** Keys and values get the affinity of their column, exactly as in SQL: an integer key in a TEXT column is the text of its
** digits, '12' in an INTEGER column the number. Bytes never equal text. So a key finds the row that SELECT ... WHERE k=? with the same
** parameter would find, under the column's collation (a table whose primary key has another one than that column is no map);
** where none can be meant (bytes in an INTEGER PRIMARY KEY) nothing is found, and writing fails with SQLITE_MISMATCH. What may
** make a row meets the one that is stored under its key, as ON CONFLICT does: in a REAL column an integer becomes the double next to it.
*/
typedef struct plait_value plait_value;
struct plait_value {
  int type;
  sqlite3_int64 integer;
  double real;
  const void *data;
  sqlite3_int64 size;      /* bytes */
};
#define PLAIT_NONE 0

#if defined(__cplusplus) || (defined(__STDC_VERSION__) && __STDC_VERSION__>=199901L)
# define PLAIT_INLINE static inline
#else
# define PLAIT_INLINE static
#endif
#if defined(__GNUC__)
# define PLAIT_UNUSED __attribute__((unused))
#else
# define PLAIT_UNUSED
#endif

/* Shorthands for arguments. plait_text() takes a string that ends with a zero byte, or NULL for none. */
PLAIT_UNUSED PLAIT_INLINE plait_value plait_int(sqlite3_int64 i){
  plait_value v;
  v.type = SQLITE_INTEGER; v.integer = i; v.real = 0; v.data = 0; v.size = 0;
  return v;
}
PLAIT_UNUSED PLAIT_INLINE plait_value plait_bytes(const void *p, sqlite3_int64 n){
  plait_value v;
  v.type = SQLITE_BLOB; v.integer = 0; v.real = 0; v.data = p; v.size = n;
  return v;
}
PLAIT_UNUSED PLAIT_INLINE plait_value plait_text(const char *z){
  plait_value v;
  v.type = z ? SQLITE_TEXT : PLAIT_NONE; v.integer = 0; v.real = 0; v.data = z; v.size = 0;
  if( z ) while( z[v.size] ) v.size++;
  return v;
}
PLAIT_UNUSED PLAIT_INLINE plait_value plait_real(double r){
  plait_value v;
  v.type = SQLITE_FLOAT; v.integer = 0; v.real = r; v.data = 0; v.size = 0;
  return v;
}
PLAIT_UNUSED PLAIT_INLINE plait_value plait_null(void){
  plait_value v;
  v.type = SQLITE_NULL; v.integer = 0; v.real = 0; v.data = 0; v.size = 0;
  return v;
}
PLAIT_UNUSED PLAIT_INLINE plait_value plait_none(void){
  plait_value v;
  v.type = PLAIT_NONE; v.integer = 0; v.real = 0; v.data = 0; v.size = 0;
  return v;
}

/*
** Open a table as a map.
**
**     zDb     name of the database: "main", "temp" or as in ATTACH. NULL: "main"
**     zTable  name of the table
**     flags   0, or a sum of the flags below
**     ppMap   the map, NULL after a failure
**
** A map is a table with a primary key of one column, and one other column, the value; generated columns do not
** count. The tables
**
**     CREATE TABLE t(k INTEGER PRIMARY KEY, v);
**     CREATE TABLE t(k BLOB PRIMARY KEY, v) WITHOUT ROWID;
**     CREATE TABLE t(k TEXT PRIMARY KEY, v);
**
** and those like them, whatever names, types and collations, are read and written directly, with no SQL on the way. Tables with more indexes,
** triggers, CHECKs, foreign keys, generated columns, AUTOINCREMENT, STRICT or a column of type REAL are read
** directly and written through statements that the map keeps prepared: INSERT for an absent key, UPDATE for a present one, and
** DELETE. All that hangs on them happens and may fail as it does in SQL. Views, virtual tables, tables of another form and (for
** writing) SQLite's own are refused with SQLITE_ERROR and the reason.
**
** PLAIT_MAP_READONLY: every write through the map fails with SQLITE_READONLY (together with a flag that creates, a missing table is made), and the authorizer is not asked for any.
** PLAIT_MAP_CREATE_INTEGER, _BYTES, _TEXT, of which at most one may be given: creates the table first if it is not there, with keys of that type; a
** table that is there stays as it is, whatever its keys are. That is DDL: it waits for, and may fail because of, other writers like
** CREATE TABLE, and belongs to the open transaction if there is one.
**
** The authorizer, if there is one, is asked here and whenever the map has to look at the table anew (the schema has changed,
** the authorizer was set): SQLITE_SELECT, SQLITE_READ of both columns, and unless read-only SQLITE_INSERT, SQLITE_UPDATE of the
** value and SQLITE_DELETE. Any answer but SQLITE_OK refuses the map with SQLITE_AUTH.
**
** The map goes by names. When the table is changed, dropped, created anew or its database vacuumed, by this connection or
** by another process, the next call looks at it anew; if it is not there or not a map any more, that call and all after it
** fail with SQLITE_ERROR, until it is there again.
**
** An open map is a prepared statement to its connection: sqlite3_close() returns SQLITE_BUSY, after sqlite3_close_v2() the connection
** lives until the last map is closed. A program that finalizes all of sqlite3_next_stmt() must close its maps
** before. A map holds no lock and no snapshot between calls; a cursor does.
*/
typedef struct plait_map plait_map;
SQLITE_API int plait_map_open(sqlite3 *db, const char *zDb, const char *zTable, int flags, plait_map **ppMap);
#define PLAIT_MAP_READONLY       0x01
#define PLAIT_MAP_CREATE_INTEGER 0x10   /* (k INTEGER PRIMARY KEY, v) */
#define PLAIT_MAP_CREATE_BYTES   0x20   /* (k BLOB PRIMARY KEY, v) WITHOUT ROWID */
#define PLAIT_MAP_CREATE_TEXT    0x40   /* (k TEXT PRIMARY KEY, v) WITHOUT ROWID */

/*
** Close a map, and free all that it has answered. Closing NULL does nothing. A map with open cursors lives, for them alone, until
** the last of them is closed. SQLITE_OK, or SQLITE_MISUSE from within a call on this map, which then stays open.
*/
SQLITE_API int plait_map_close(plait_map *pMap);

/*
** Look a key up. plait_get() sets *pValue to the value, or its type to PLAIT_NONE if there is no such key. data stays
** until the next call on this map, or until it is closed. plait_contains() sets *pbFound to 1 or 0.
*/
SQLITE_API int plait_get(plait_map *pMap, plait_value key, plait_value *pValue);
SQLITE_API int plait_contains(plait_map *pMap, plait_value key, int *pbFound);

/*
** Look n keys up in one snapshot: aValue[i] is for aKey[i], as in plait_get(). All answers stay until the next call on this map.
** Their sizes together may not exceed 2147483647 bytes: SQLITE_TOOBIG.
*/
SQLITE_API int plait_get_many(plait_map *pMap, int n, const plait_value *aKey, plait_value *aValue);

/*
** Write a value.
**
**     plait_put      whether the key is there or not
**     plait_insert   only if it is not
**     plait_update   only if it is
**     plait_delete   removes the row, if it is there
**
** *pbDone becomes 1 if a row was written or deleted, and else 0. A present row keeps its rowid and its key as it was stored
** ('A' stays 'A' when 'a' is put under NOCASE). A trigger's RAISE(IGNORE) or an ON CONFLICT IGNORE of the table can leave the row as it was, which
** is no failure, as in SQL: *pbDone is 0 then. With READONLY maps and databases: SQLITE_READONLY.
*/
SQLITE_API int plait_put(plait_map *pMap, plait_value key, plait_value value);
SQLITE_API int plait_insert(plait_map *pMap, plait_value key, plait_value value, int *pbDone);
SQLITE_API int plait_update(plait_map *pMap, plait_value key, plait_value value, int *pbDone);
SQLITE_API int plait_delete(plait_map *pMap, plait_value key, int *pbDone);

/*
** Compare and swap: if the value of key is expected, it becomes value, and *pbDone 1; else nothing changes, and *pbDone is 0. PLAIT_NONE
** as expected: the key must be absent. PLAIT_NONE as value: the row is deleted. Equal are values of the same type and
** content, after the column's affinity; collations do not count.
*/
SQLITE_API int plait_compare_and_swap(
  plait_map *pMap, plait_value key, plait_value expected, plait_value value, int *pbDone);

/*
** Add to an integer; an absent key counts as 0. *piNew becomes the new value. SQLITE_MISMATCH if the value is not an integer,
** SQLITE_ERROR "integer overflow" if the sum is none. Any number of threads and processes may add to one key:
** each delta counts once. SQLITE_CONSTRAINT if a trigger's RAISE(IGNORE) or an ON CONFLICT IGNORE has left the row as it was, so that
** *piNew would be false; so it is with plait_append(). What the column's affinity or a trigger makes of the sum is stored, and is not *piNew:
** in a TEXT or REAL column the next addition fails with SQLITE_MISMATCH.
*/
SQLITE_API int plait_add(plait_map *pMap, plait_value key, sqlite3_int64 delta, sqlite3_int64 *piNew);

/*
** Append bytes or text to a value of the same type; an absent key counts as empty. *pnSize becomes the new size in
** bytes (of UTF-8 for text). SQLITE_MISMATCH if the value has another type. The whole value is written.
*/
SQLITE_API int plait_append(plait_map *pMap, plait_value key, plait_value tail, sqlite3_int64 *pnSize);

/*
** A range of keys, in the order of the key's column (ORDER BY k): the collation's, integers before text before bytes. A table
** declared PRIMARY KEY DESC is walked in ascending order like all others. Rows whose key is NULL (tables with rowids may have
** some) are in no range.
**
**     lo, hi   the bounds; PLAIT_NONE: unbounded
**     flags    PLAIT_LO_OPEN, PLAIT_HI_OPEN: the bound itself is outside. PLAIT_PREFIX: all keys that begin with lo, which must be
**              text or bytes under the collation BINARY; hi must be PLAIT_NONE
**
** Where a range is an argument, NULL means all keys.
*/
typedef struct plait_range plait_range;
struct plait_range {
  plait_value lo;
  plait_value hi;
  int flags;
};
#define PLAIT_LO_OPEN 0x1
#define PLAIT_HI_OPEN 0x2
#define PLAIT_PREFIX  0x4

/*
** Count, or delete, all rows of a range. Deleting is all or nothing. *pn becomes the number of rows. Both walk over the
** rows, and heed sqlite3_interrupt() and the progress handler.
*/
SQLITE_API int plait_count_range(plait_map *pMap, const plait_range *pRange, sqlite3_int64 *pn);
SQLITE_API int plait_delete_range(plait_map *pMap, const plait_range *pRange, sqlite3_int64 *pn);

/*
** The first and the last row of a range. pKey->type becomes PLAIT_NONE if there is none. Answers stay until the next call on this map.
*/
SQLITE_API int plait_first(plait_map *pMap, const plait_range *pRange, plait_value *pKey, plait_value *pValue);
SQLITE_API int plait_last(plait_map *pMap, const plait_range *pRange, plait_value *pKey, plait_value *pValue);

/*
** A cursor: walks over a range in both directions. To its connection it is a SELECT that has not ended: from its
** first move until it is closed (or a move fails) it holds a snapshot; what this connection writes meanwhile is seen if it lies ahead; COMMIT
** works beside it, ROLLBACK ends it if the schema was changed (SQLITE_ABORT_ROLLBACK), and DROP of a table is refused with
** SQLITE_LOCKED. Close cursors early: in concurrent mode and in WAL mode their snapshot keeps memory or log from being used again.
**
** Every move returns SQLITE_ROW, and sets *pKey and *pValue (either may be NULL: an unwanted value is not read), or SQLITE_DONE: there
** is no such row; or an error code. Answers stay until the next call on this cursor, or any call on its connection that
** writes, ends a transaction or closes the database: values that lie on one page are not copied.
**
**     plait_cursor_first, _last   to the ends of the range
**     plait_cursor_next, _prev    onward; from a new cursor: first and last. After SQLITE_DONE they stay there: next then goes on
**                                 saying SQLITE_DONE, and prev from the end is the last row
**     plait_cursor_seek           to the nearest key of the range that is PLAIT_GE, _GT, _LE, _LT or equal (PLAIT_EQ) to key
**
** The row that a cursor is on may be deleted and changed; next and prev go on from where it was. After an error next and prev
** repeat it, until first, last or seek begins anew.
*/
typedef struct plait_cursor plait_cursor;
SQLITE_API int plait_cursor_open(plait_map *pMap, const plait_range *pRange, plait_cursor **ppCursor);
SQLITE_API int plait_cursor_first(plait_cursor *pCursor, plait_value *pKey, plait_value *pValue);
SQLITE_API int plait_cursor_last(plait_cursor *pCursor, plait_value *pKey, plait_value *pValue);
SQLITE_API int plait_cursor_next(plait_cursor *pCursor, plait_value *pKey, plait_value *pValue);
SQLITE_API int plait_cursor_prev(plait_cursor *pCursor, plait_value *pKey, plait_value *pValue);
SQLITE_API int plait_cursor_seek(
  plait_cursor *pCursor, plait_value key, int how, plait_value *pKey, plait_value *pValue);
SQLITE_API int plait_cursor_close(plait_cursor *pCursor);
#define PLAIT_EQ 0
#define PLAIT_GE 1
#define PLAIT_GT 2
#define PLAIT_LE 3
#define PLAIT_LT 4

/*
** A batch: puts, deletes, additions and conditions on one map, all or nothing, as one statement.
**
** First all conditions are tested, against what was there before the batch. If one does not hold nothing is written, and *piFailed
** becomes its index; else *piFailed is -1, and the other items are done in their order.
**
**     PLAIT_BATCH_PUT      as plait_put()
**     PLAIT_BATCH_DELETE   as plait_delete(); value is not looked at
**     PLAIT_BATCH_ADD      as plait_add() of value, an integer
**     PLAIT_BATCH_EXPECT   condition: key has this value, or with PLAIT_NONE is absent
**
** For batches over several maps begin a transaction around several calls.
*/
typedef struct plait_batch_item plait_batch_item;
struct plait_batch_item {
  int op;
  plait_value key;
  plait_value value;
};
#define PLAIT_BATCH_PUT    1
#define PLAIT_BATCH_DELETE 2
#define PLAIT_BATCH_ADD    3
#define PLAIT_BATCH_EXPECT 4
SQLITE_API int plait_batch(plait_map *pMap, int n, const plait_batch_item *aItem, int *piFailed);

/*
** Load many rows in one call, all or nothing. xNext is called until it returns SQLITE_DONE; with SQLITE_ROW it has set *pKey and
** *pValue, whose data must stay until it is called again; anything else but 0 ends the load, nothing is written, and plait_load()
** returns that code, whatever number it is (sqlite3_errcode() says SQLITE_ABORT). Rows are put, the later of two with the same key wins: the same under the affinity and collation of its column.
**
**     flags   0: rows are gathered up to 16 MiB at a time, sorted and then written, which makes large loads in random
**             order faster. PLAIT_LOAD_SORTED: they come in ascending order (or nearly) and are written as they come
**     pn      becomes the number of rows that xNext gave
**
** The right to write is held from before the first call of xNext, which must use this connection for nothing that writes.
*/
SQLITE_API int plait_load(
  plait_map *pMap, int flags,
  int (*xNext)(void *pCtx, plait_value *pKey, plait_value *pValue), void *pCtx,
  sqlite3_int64 *pn);
#define PLAIT_LOAD_SORTED 1

#ifdef __cplusplus
}
#endif
#endif /* PLAIT_H */
