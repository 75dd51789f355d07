/*
** dbapi.h - what Plait adds to the sources of pysqlite3, which the build edits to include this (python/pysqlite3.py).
**
** These are the calls that CPython's own sqlite3 has gained since those sources left it: limits, settings, databases as bytes, and the names of all codes. Like
** those sources, and unlike the rest of csrc, it is written against the CPython that it is built for: their types are static, which the stable ABI does not have.
*/
#ifndef PLAIT_DBAPI_H
#define PLAIT_DBAPI_H

PyObject *plait_getlimit(PyObject *self, PyObject *args);
PyObject *plait_setlimit(PyObject *self, PyObject *args);
PyObject *plait_getconfig(PyObject *self, PyObject *args);
PyObject *plait_setconfig(PyObject *self, PyObject *args);
PyObject *plait_serialize(PyObject *self, PyObject *args, PyObject *named);
PyObject *plait_deserialize(PyObject *self, PyObject *args, PyObject *named);

/* blob_items.c: what a Blob does with [...]. */
PyObject *plait_blob_subscript(PyObject *self, PyObject *item);
int plait_blob_ass_subscript(PyObject *self, PyObject *item, PyObject *value);

/* Entries of the table of a connection's methods. */
#define PLAIT_METHODS \
  {"getlimit", plait_getlimit, METH_VARARGS, PyDoc_STR("The limit of a category.")}, \
  {"setlimit", plait_setlimit, METH_VARARGS, PyDoc_STR("Sets the limit of a category; the one before.")}, \
  {"getconfig", plait_getconfig, METH_VARARGS, PyDoc_STR("Whether a setting of the connection is on.")}, \
  {"setconfig", plait_setconfig, METH_VARARGS, PyDoc_STR("Sets a setting of the connection.")}, \
  {"serialize", (PyCFunction)(void(*)(void))plait_serialize, METH_VARARGS|METH_KEYWORDS, PyDoc_STR("A database as bytes.")}, \
  {"deserialize", (PyCFunction)(void(*)(void))plait_deserialize, METH_VARARGS|METH_KEYWORDS, PyDoc_STR("A database from bytes.")},

/* The name of a result code, extended ones too. */
const char *plait_error_name(int code);
/* Adds all result codes, limits and settings to the module; -1 with an exception. */
int plait_add_constants(PyObject *module);

#endif
