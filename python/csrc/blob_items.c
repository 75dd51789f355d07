/*
** blob_items.c - single bytes and slices of a sqlite3.Blob, as CPython has them since 3.11: an item is an integer.
*/
#include "module.h"
#include "blob.h"
#include "util.h"

int pysqlite_check_blob(pysqlite_Blob *blob);

/* Which bytes are meant: n of them, the first at start, each step further; the least is at low, and span bytes from there are touched. */
typedef struct {
  Py_ssize_t start, step, n, low, span;
  int is_item;
} Which;

static int which(pysqlite_Blob *blob, PyObject *item, Which *w){
  Py_ssize_t stop;
  w->is_item = PyIndex_Check(item);
  if( w->is_item ){
    w->start = PyNumber_AsSsize_t(item, PyExc_IndexError);
    if( w->start==-1 && PyErr_Occurred() ) return -1;
    if( w->start<0 ) w->start += blob->length;
    if( w->start<0 || w->start>=blob->length ){
      PyErr_SetString(PyExc_IndexError, "Blob index out of range");
      return -1;
    }
    w->step = w->n = 1;
  }else if( PySlice_Check(item) ){
    if( PySlice_Unpack(item, &w->start, &stop, &w->step)<0 ) return -1;
    w->n = PySlice_AdjustIndices(blob->length, &w->start, &stop, w->step);
  }else{
    PyErr_SetString(PyExc_TypeError, "Blob indices must be integers");
    return -1;
  }
  w->low = w->step<0 && w->n>0 ? w->start+(w->n-1)*w->step : w->start;
  w->span = w->n>0 ? (w->n-1)*(w->step<0 ? -w->step : w->step)+1 : 0;
  return 0;
}

static int failed(pysqlite_Blob *blob, int rc){
  if( rc==SQLITE_OK ) return 0;
  if( rc==SQLITE_ABORT ) PyErr_SetString(pysqlite_OperationalError, "Cannot operate on modified blob");
  else _pysqlite_seterror(blob->connection->db);
  if( !PyErr_Occurred() ) PyErr_SetString(pysqlite_OperationalError, sqlite3_errstr(rc));
  return -1;
}

/* The bytes that are touched; NULL with an exception. */
static unsigned char *touched(pysqlite_Blob *blob, const Which *w){
  unsigned char *bytes = PyMem_Malloc((size_t)w->span+1);
  int rc = SQLITE_OK;
  if( bytes==NULL ){
    PyErr_NoMemory();
    return NULL;
  }
  if( w->span>0 ){
    Py_BEGIN_ALLOW_THREADS
    rc = sqlite3_blob_read(blob->blob, bytes, (int)w->span, (int)w->low);
    Py_END_ALLOW_THREADS
  }
  if( failed(blob, rc) ){
    PyMem_Free(bytes);
    return NULL;
  }
  return bytes;
}

PyObject *plait_blob_subscript(PyObject *self, PyObject *item){
  pysqlite_Blob *blob = (pysqlite_Blob*)self;
  unsigned char *bytes;
  PyObject *answer;
  Py_ssize_t i;
  Which w;
  if( !pysqlite_check_blob(blob) || which(blob, item, &w) || (bytes = touched(blob, &w))==NULL ) return NULL;
  if( w.is_item ){
    answer = PyLong_FromLong(bytes[0]);
  }else{
    answer = PyBytes_FromStringAndSize(NULL, w.n);
    for(i=0; answer && i<w.n; i++) PyBytes_AS_STRING(answer)[i] = (char)bytes[w.start+i*w.step-w.low];
  }
  PyMem_Free(bytes);
  return answer;
}

/* Puts the new bytes of a slice among those that are touched. */
static int put_slice(const Which *w, unsigned char *bytes, PyObject *value){
  Py_buffer given;
  Py_ssize_t i;
  int wrong;
  if( PyObject_GetBuffer(value, &given, PyBUF_SIMPLE)<0 ) return -1;
  wrong = given.len!=w->n;
  for(i=0; !wrong && i<w->n; i++) bytes[w->start+i*w->step-w->low] = ((unsigned char*)given.buf)[i];
  PyBuffer_Release(&given);
  if( wrong ) PyErr_SetString(PyExc_IndexError, "Blob slice assignment is wrong size");
  return wrong ? -1 : 0;
}

static int put_item(unsigned char *bytes, PyObject *value){
  long byte;
  if( !PyLong_Check(value) ){
    PyErr_Format(PyExc_TypeError, "'%s' object cannot be interpreted as an integer", Py_TYPE(value)->tp_name);
    return -1;
  }
  byte = PyLong_AsLong(value);
  if( byte==-1 && PyErr_Occurred() ) PyErr_Clear();
  else if( byte>=0 && byte<=255 ){
    bytes[0] = (unsigned char)byte;
    return 0;
  }
  PyErr_SetString(PyExc_ValueError, "byte must be in range(0, 256)");
  return -1;
}

int plait_blob_ass_subscript(PyObject *self, PyObject *item, PyObject *value){
  pysqlite_Blob *blob = (pysqlite_Blob*)self;
  unsigned char *bytes;
  int rc = SQLITE_OK, error;
  Which w;
  if( !pysqlite_check_blob(blob) ) return -1;
  if( value==NULL ){
    PyErr_SetString(PyExc_TypeError, "Blob doesn't support item deletion");
    return -1;
  }
  if( which(blob, item, &w) || (bytes = touched(blob, &w))==NULL ) return -1;
  error = w.is_item ? put_item(bytes, value) : put_slice(&w, bytes, value);
  if( !error && w.span>0 ){
    Py_BEGIN_ALLOW_THREADS
    rc = sqlite3_blob_write(blob->blob, bytes, (int)w.span, (int)w.low);
    Py_END_ALLOW_THREADS
    error = failed(blob, rc);
  }
  PyMem_Free(bytes);
  return error;
}
