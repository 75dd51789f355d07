/*
** value.c - Python objects as values of the library, and back.
**
** None, int, float, str and bytes are SQLite's five types; bytearray and memoryview go in as bytes. Nothing is converted on the way in: a
** map of str takes no int. What comes out and is not of the kind that the map was opened for is an error, since somebody else has written it.
*/
#include "plait_py.h"
#include <math.h>
#include <string.h>

static const char *const kind_names[] = {"any", "bytes", "str", "int", "float"};

/* KIND_... by its name, or -1 with an exception. */
int kind_of(PyObject *name){
  const char *text = PyUnicode_AsUTF8AndSize(name, NULL);
  int i;
  if( text==NULL ) return -1;
  for(i=KIND_ANY; i<=KIND_FLOAT; i++){
    if( strcmp(text, kind_names[i])==0 ) return i;
  }
  PyErr_Format(PyExc_ValueError, "unknown kind %R", name);
  return -1;
}

void value_clear(Value *value){
  Py_CLEAR(value->hold);
}

static int wrong_type(PyObject *o, const char *wanted, const char *what){
  PyObject *name = PyObject_GetAttrString((PyObject*)Py_TYPE(o), "__name__");
  if( name ){
    PyErr_Format(PyExc_TypeError, "%s must be %s, not %U", what, wanted, name);
    Py_DECREF(name);
  }
  return -1;
}

static int integer_from(PyObject *o, const char *what, Value *out){
  int overflow;
  out->v = plait_int(PyLong_AsLongLongAndOverflow(o, &overflow));
  if( overflow ){
    PyErr_Format(PyExc_OverflowError, "%s does not fit into 64 bits", what);
    return -1;
  }
  return 0;
}

static int real_from(PyObject *o, const char *what, Value *out){
  out->v = plait_real(PyFloat_AsDouble(o));
  if( isnan(out->v.real) ){
    PyErr_Format(PyExc_ValueError, "%s is not a number: SQLite would store NULL", what);
    return -1;
  }
  return 0;
}

static int text_from(PyObject *o, Value *out){
  Py_ssize_t size;
  const char *data = PyUnicode_AsUTF8AndSize(o, &size);    /* surrogates: UnicodeEncodeError, which says where */
  if( data==NULL ) return -1;
  out->v = plait_bytes(data, size);
  out->v.type = SQLITE_TEXT;
  out->hold = Py_NewRef(o);
  return 0;
}

static int bytes_from(PyObject *o, Value *out){
  char *data;
  Py_ssize_t size;
  if( PyBytes_Check(o) ){
    out->hold = Py_NewRef(o);
  }else{
    out->hold = PyBytes_FromObject(o);                     /* a copy: others may change it while the GIL is released */
    if( out->hold==NULL ) return -1;
  }
  if( PyBytes_AsStringAndSize(out->hold, &data, &size) ) return -1;
  out->v = plait_bytes(data, size);
  return 0;
}

static int is_bytes(PyObject *o){
  return PyBytes_Check(o) || PyByteArray_Check(o) || Py_IS_TYPE(o, &PyMemoryView_Type);
}

/* The value of o, which must be of that kind; 0, or -1 with an exception, in which what names the thing. value_clear() in both cases. */
int value_from(PyObject *o, int kind, const char *what, Value *out){
  out->hold = NULL;
  out->v = plait_null();
  if( (kind==KIND_STR || kind==KIND_ANY) && PyUnicode_Check(o) ) return text_from(o, out);
  if( (kind==KIND_BYTES || kind==KIND_ANY) && is_bytes(o) ) return bytes_from(o, out);
  if( (kind==KIND_INT || kind==KIND_ANY) && PyLong_Check(o) ) return integer_from(o, what, out);
  if( (kind==KIND_FLOAT || kind==KIND_ANY) && PyFloat_Check(o) ) return real_from(o, what, out);
  if( kind==KIND_FLOAT && PyLong_Check(o) ){
    double real = PyLong_AsDouble(o);
    if( real==-1.0 && PyErr_Occurred() ) return -1;
    out->v = plait_real(real);
    return 0;
  }
  if( kind==KIND_ANY && o==Py_None ) return 0;
  return wrong_type(o, kind==KIND_ANY ? "None, int, float, str or bytes" : kind_names[kind], what);
}

/* The same for a key, which is never None. */
int key_value_from(PyObject *o, int kind, Value *out){
  int is_possible = o!=Py_None && (PyUnicode_Check(o) || is_bytes(o) || PyLong_Check(o) || PyFloat_Check(o));
  if( kind!=KIND_ANY || is_possible ) return value_from(o, kind, "a key", out);
  out->hold = NULL;
  return wrong_type(o, "int, float, str or bytes", "a key");
}

static PyObject *stored_otherwise(const plait_value *v, int kind, const char *what){
  static const char *const types[] = {"nothing", "an integer", "a real", "text", "bytes", "NULL"};
  PyErr_Format(PyExc_TypeError, "the table has %s as a %s where the map was opened for %s: open it with %s=None for all of SQLite's types",
      types[v->type], what, kind_names[kind], what);
  return NULL;
}

/* The Python object of an answer; NULL with an exception. */
PyObject *value_to(const plait_value *v, int kind, const char *what){
  switch( v->type ){
    case SQLITE_BLOB:
      if( kind==KIND_ANY || kind==KIND_BYTES ) return PyBytes_FromStringAndSize(v->data, (Py_ssize_t)v->size);
      break;
    case SQLITE_TEXT:
      if( kind==KIND_ANY || kind==KIND_STR ) return PyUnicode_DecodeUTF8(v->data, (Py_ssize_t)v->size, NULL);
      break;
    case SQLITE_INTEGER:
      if( kind==KIND_ANY || kind==KIND_INT ) return PyLong_FromLongLong(v->integer);
      if( kind==KIND_FLOAT ) return PyFloat_FromDouble((double)v->integer);
      break;
    case SQLITE_FLOAT:
      if( kind==KIND_ANY || kind==KIND_FLOAT ) return PyFloat_FromDouble(v->real);
      break;
    case SQLITE_NULL:
      if( kind==KIND_ANY ) Py_RETURN_NONE;
      break;
  }
  return stored_otherwise(v, kind, what);
}
