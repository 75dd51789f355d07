/*
** sql.c - additions to the SQL language: BEGIN CONCURRENT and the plait_... pragmas.
**
** BEGIN CONCURRENT: after the token BEGIN the parser gets an identifier "concurrent" as
** DEFERRED. P3 of OP_AutoCommit records that it was written, and db->mDbFlags until the
** transaction ends (begin.c).
*/

static int plIsConcurrentWord(const char *z, i64 n){
  return n==10 && sqlite3StrNICmp(z, "concurrent", 10)==0;
}

/* The tokenizer has an identifier after BEGIN: returns its token. */
static int plBeginToken(const char *z, i64 n){
  return plIsConcurrentWord(z, n) ? TK_DEFERRED : TK_ID;
}

/* Returns what follows BEGIN in the statement being parsed. 1: CONCURRENT, 2: no word that
** names a kind, 0: DEFERRED. While the parser runs, Parse.zTail is still the start of the
** statement's text. */
static int plBeginIsConcurrent(Parse *pParse){
  const u8 *z = (const u8*)pParse->zTail;
  int eToken, bBegin = 0;
  while( z[0] ){
    i64 n = sqlite3GetToken(z, &eToken);
    if( eToken!=TK_SPACE && eToken!=TK_COMMENT ){
      if( bBegin ){
        if( eToken==TK_ID && plIsConcurrentWord((const char*)z, n) ) return 1;
        return eToken==TK_DEFERRED ? 0 : 2;
      }
      if( eToken==TK_BEGIN ) bBegin = 1;
    }
    z += n;
  }
  return 2;
}

/* BEGIN is being compiled as this type; without a word for its kind it may mean IMMEDIATE. */
static int plBeginType(Parse *pParse, int type){
  int bImmediate = type==TK_DEFERRED && plBeginKind(pParse->db)==PL_BEGIN_IMMEDIATE && plBeginIsConcurrent(pParse)==2;
  return bImmediate ? TK_IMMEDIATE : type;
}

/* Attaches a handle that has not looked at its file yet. */
static int plLook(Btree *p){
  int rc = SQLITE_OK;
  if( !PL_BT(p) && sqlite3BtreeTxnState(p)==SQLITE_TXN_NONE ){
    rc = sqlite3BtreeBeginTrans(p, 0, 0);
    if( rc==SQLITE_OK ) rc = sqlite3BtreeCommit(p);
  }
  return rc;
}

/* PRAGMA plait_background_merge = on | off, PRAGMA plait_wal_limit = bytes: settings of
** the session. */
static int plPragmaSetting(Btree *p, int which, char **aFcntl){
  char **pzOut = &aFcntl[0];
  const char *zName = aFcntl[1], *zArg = aFcntl[2];
  i64 iValue = -1;
  int64_t iSet = 0;
  int rc = plJoin(p);
  if( rc ){
    *pzOut = sqlite3_mprintf("%s", plErrStr(p->db, rc));
    return rc;
  }
  if( !PL_BT(p) ){
    *pzOut = sqlite3_mprintf("%s: \"%s\" is not in journal_mode=concurrent", zName, plDbName(p));
    return SQLITE_ERROR;
  }
  if( zArg ){
    if( which==PL_SET_BACKGROUND_MERGE ){
      iValue = sqlite3GetBoolean(zArg, 0);
      if( iValue==0 && sqlite3GetBoolean(zArg, 1) ) iValue = -1;
    }else if( sqlite3DecOrHexToI64(zArg, &iValue) || iValue<=0 ){
      iValue = -1;
    }
    if( iValue<0 ){
      *pzOut = sqlite3_mprintf("%s: \"%s\" is not a value for it", zName, zArg);
      return SQLITE_ERROR;
    }
    /* They are the session's, and with it its follower's (FOLLOWS-8). */
    if( plFollows(p) ){
      *pzOut = plWhyReplica(p);
      return SQLITE_READONLY;
    }
  }
  rc = plFail(p, pl_setting(p->pPl->pConn, which, iValue, &iSet));
  if( rc ){
    *pzOut = sqlite3_mprintf("%s", plErrStr(p->db, rc));
    return rc;
  }
  *pzOut = aFcntl[3] = sqlite3_mprintf("%lld", (i64)iSet);
  return SQLITE_OK;
}

/* The number in a result of plPragma. */
static i64 plPragmaNumber(const char *z){
  i64 iValue = 0;
  sqlite3DecOrHexToI64(z, &iValue);
  return iValue;
}

/*
** SQLITE_FCNTL_PRAGMA: aFcntl[1] is the pragma, [2] its argument or 0, [0] the result. [3] is the
** result too if that is a number, and stays 0 otherwise.
*/
static int plPragma(sqlite3 *db, const char *zDb, char **aFcntl){
  const char *zName = aFcntl[1];
  PL_LET_GO(db);    /* some pragmas do their work while they are compiled */
  if( sqlite3StrNICmp(zName, "plait_", 6)==0 ){
    Btree *p = sqlite3DbNameToBtree(db, zDb);
    if( sqlite3StrICmp(zName, "plait_begin")==0 ) return plPragmaBegin(db, aFcntl[2], aFcntl);
    if( p && sqlite3StrICmp(zName, "plait_background_merge")==0 ){
      return plPragmaSetting(p, PL_SET_BACKGROUND_MERGE, aFcntl);
    }
    if( p && sqlite3StrICmp(zName, "plait_wal_limit")==0 ){
      return plPragmaSetting(p, PL_SET_WAL_LIMIT_BYTES, aFcntl);
    }
    *aFcntl = sqlite3_mprintf("no such pragma: %s", zName);
    return SQLITE_ERROR;
  }
  return sqlite3_file_control(db, zDb, SQLITE_FCNTL_PRAGMA, (void*)aFcntl);
}
