"""Makes the sources of plait.sqlite3: those of pysqlite3, as pip fetches them from PyPI, with a few edits.

    python3 pysqlite3.py FOLDER      fetches the archive into FOLDER, unless it is there

They are what CPython's own sqlite3 was, in C, so that Python's API is theirs. None of them is in the repository. The archive is known by its digest, and an edit fails if
the text that it changes is not there as often as it says: another version has to be looked at.
"""

import hashlib
import re
import subprocess
import sys
import tarfile
from pathlib import Path

VERSION = "0.6.1"
DIGEST = "dd7d2b7f3a29aebdbf569c359658b091d3345b5691d9ea765a5c3febe8872bf9"
ARCHIVE = f"pysqlite3-{VERSION}.tar.gz"

# By file: what each edit is for, the text, what takes its place, and how often it is there, if more than once.
EDITS = {
    "util.c": [
        (
            "The class of an error goes by the primary code, also where extended ones are switched on.",
            "int errorcode = sqlite3_errcode(db);",
            "int errorcode = sqlite3_errcode(db) & 0xff;\n    int extended = sqlite3_extended_errcode(db);",
        ),
        (
            "A program tells a conflict (517) from a wait that ended (5), as since CPython 3.11.",
            "error_name = sqlite3ErrName(errorcode);",
            "error_name = plait_error_name(extended);",
        ),
        ("The number of the same.", 'py_code = Py_BuildValue("i", errorcode);', 'py_code = Py_BuildValue("i", extended);'),
    ],
    "module.c": [
        (
            "Blob and all constants are there, as since CPython 3.11.",
            'PyModule_AddObject(module, "Row", (PyObject*) &pysqlite_RowType);\n',
            'PyModule_AddObject(module, "Row", (PyObject*) &pysqlite_RowType);\n'
            "    Py_INCREF(&pysqlite_BlobType);\n"
            '    PyModule_AddObject(module, "Blob", (PyObject*) &pysqlite_BlobType);\n'
            "    if (plait_add_constants(module) < 0) goto error;\n",
        ),
    ],
    "blob.c": [
        (
            "Items and slices are as in CPython, and nothing else of a sequence is there.",
            "    (binaryfunc)pysqlite_blob_subscript,\n    (objobjargproc)pysqlite_blob_ass_subscript,\n",
            "    plait_blob_subscript,\n    plait_blob_ass_subscript,\n",
        ),
        (
            "A blob that is closed is let go of, and so are those that were dropped.",
            "            if (ref == (PyObject *)self) {\n                PyList_SetSlice(self->connection->blobs, i, i+1, NULL);\n                break;\n"
            "            }\n        }\n",
            "            Py_DECREF(ref);\n            if (ref == (PyObject *)self) {\n                PyList_SetSlice(self->connection->blobs, i, i+1, NULL);\n"
            "                break;\n            }\n        } else {\n            PyList_SetSlice(self->connection->blobs, i, i+1, NULL);\n            i--;\n        }\n",
        ),
        (
            "Weak references end with the object, not when it is closed.",
            "    remove_blob_from_connection_blob_list(self);\n    if (self->in_weakreflist != NULL) {\n"
            "        PyObject_ClearWeakRefs((PyObject*)self);\n    }\n}\n",
            "    remove_blob_from_connection_blob_list(self);\n}\n",
        ),
        (
            "The same.",
            "    _close_blob_inner(self);\n    Py_XDECREF(self->connection);\n",
            "    if (self->in_weakreflist != NULL) {\n        PyObject_ClearWeakRefs((PyObject*)self);\n    }\n"
            "    _close_blob_inner(self);\n    Py_XDECREF(self->connection);\n",
        ),
        ("No sequence either.", "        .tp_as_sequence = &blob_sequence_methods,\n", ""),
        ("A Blob that open_blob() has not made would have no connection.", "    pysqlite_BlobType.tp_new = PyType_GenericNew;\n", ""),
        (
            "Nothing makes one without.",
            "        .tp_flags = Py_TPFLAGS_DEFAULT,\n",
            "        .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,\n",
        ),
    ],
    "statement.c": [
        (
            "An adapter may make the list of parameters shorter.",
            "current_param = PyList_GET_ITEM(parameters, i);",
            "current_param = PyList_GetItem(parameters, i);",
        ),
        (
            "The class of this error is another since CPython 3.11.",
            'PyErr_Format(pysqlite_InterfaceError, "Error binding parameter',
            'PyErr_Format(PY_VERSION_HEX >= 0x030B0000 ? pysqlite_ProgrammingError : pysqlite_InterfaceError, "Error binding parameter',
            2,
        ),
    ],
    "connection.h": [
        ("What transactions the connection begins by itself, as Connection.autocommit of CPython 3.12 says.", "    int initialized;\n", "    int initialized;\n    int autocommit;\n"),
        ("Our own part.", "int pysqlite_connection_setup_types(void);\n", 'int pysqlite_connection_setup_types(void);\n#include "dbapi.h"\n'),
    ],
    "connection.c": [
        ("isolation_level may be CONCURRENT.", '    "BEGIN EXCLUSIVE",\n', '    "BEGIN EXCLUSIVE",\n    "BEGIN CONCURRENT",\n'),
        (
            "A connection that is initialized again is closed first, and -1 is: as isolation_level says.",
            "    self->initialized = 1;\n",
            "    if (self->initialized) {\n        pysqlite_do_all_statements(self, ACTION_FINALIZE, 1);\n        pysqlite_close_all_blobs(self);\n"
            "        sqlite3 *db = self->db;\n        self->db = NULL;\n        Py_BEGIN_ALLOW_THREADS\n        (void)sqlite3_close_v2(db);\n"
            "        Py_END_ALLOW_THREADS\n    }\n    self->initialized = 1;\n    self->autocommit = -1;\n",
        ),
        (
            "What the edit before uses.",
            "static void _pysqlite_drop_unused_cursor_references(pysqlite_Connection* self);\n",
            "static void _pysqlite_drop_unused_cursor_references(pysqlite_Connection* self);\n"
            "void pysqlite_do_all_statements(pysqlite_Connection* self, int action, int reset_cursors);\n"
            "static void pysqlite_close_all_blobs(pysqlite_Connection *self);\n",
        ),
        (
            "A connection that could not be opened is none.",
            "        _pysqlite_seterror(self->db);\n        return -1;\n    }\n\n    if (!isolation_level) {\n",
            "        _pysqlite_seterror(self->db);\n        (void)sqlite3_close_v2(self->db);\n        self->db = NULL;\n        self->initialized = 0;\n"
            "        return -1;\n    }\n\n    if (!isolation_level) {\n",
        ),
        (
            "The class of this error is another since CPython 3.11.",
            'PyErr_SetString(pysqlite_Warning, "You can only execute',
            'PyErr_SetString(PY_VERSION_HEX >= 0x030B0000 ? pysqlite_ProgrammingError : pysqlite_Warning, "You can only execute',
        ),
        ("What a callback raises is told as since CPython 3.11: to sys.unraisablehook.", "PyErr_Print();", "PyErr_WriteUnraisable(NULL);", 13),
        (
            "Text may have NULs in it.",
            "cur_py_value = PyUnicode_FromString(val_str);",
            "cur_py_value = PyUnicode_FromStringAndSize(val_str, sqlite3_value_bytes(cur_value));",
        ),
        (
            "Text that a function answers too.",
            "        const char *str = PyUnicode_AsUTF8(py_val);\n        if (str == NULL)\n            return -1;\n"
            "        sqlite3_result_text(context, str, -1, SQLITE_TRANSIENT);\n",
            "        Py_ssize_t size;\n        const char *str = PyUnicode_AsUTF8AndSize(py_val, &size);\n        if (str == NULL)\n            return -1;\n"
            "        sqlite3_result_text64(context, str, (sqlite3_uint64)size, SQLITE_TRANSIENT, SQLITE_UTF8);\n",
        ),
        (
            "A handler's answer may fail to be true or false.",
            "        rc = (int)PyObject_IsTrue(ret);\n        Py_DECREF(ret);\n    }\n\n    PyGILState_Release(gilstate);\n    return rc;\n}\n\nstatic int _busy_handler",
            "        rc = (int)PyObject_IsTrue(ret);\n        Py_DECREF(ret);\n        if (rc < 0) {\n"
            "            if (_pysqlite_enable_callback_tracebacks) {\n                PyErr_WriteUnraisable(NULL);\n            } else {\n"
            "                PyErr_Clear();\n            }\n            rc = 1;\n        }\n    }\n\n    PyGILState_Release(gilstate);\n    return rc;\n}\n\n"
            "static int _busy_handler",
        ),
        (
            "An aggregate without step() is an error of SQL, not one that comes out elsewhere.",
            "    if (!stepmethod) {\n        goto error;\n    }\n",
            "    if (!stepmethod) {\n        PyErr_Clear();\n"
            "        _sqlite3_result_error(context, \"user-defined aggregate's 'step' method not defined\", -1);\n        goto error;\n    }\n",
        ),
        (
            "A connection that is closed, or was not initialized, has none.",
            "{\n    Py_INCREF(self->isolation_level);\n",
            "{\n    if (!pysqlite_check_connection(self)) {\n        return NULL;\n    }\n    Py_INCREF(self->isolation_level);\n",
        ),
        (
            "Nor is there anything to close in one that was not initialized.",
            "    pysqlite_do_all_statements(self, ACTION_FINALIZE, 1);\n\n    pysqlite_close_all_blobs(self);\n\n",
            '    if (!self->initialized) {\n        PyErr_SetString(pysqlite_ProgrammingError, "Base Connection.__init__ not called.");\n        return NULL;\n    }\n\n'
            "    pysqlite_do_all_statements(self, ACTION_FINALIZE, 1);\n\n    pysqlite_close_all_blobs(self);\n\n",
        ),
        (
            "The error of a backup has a code too.",
            "        } else {\n            PyErr_SetString(pysqlite_OperationalError, sqlite3_errstr(rc));\n        }\n    }\n\n    if (!callback_error && rc == SQLITE_OK) {\n",
            "        } else {\n            if (!PyErr_Occurred()) {\n                _pysqlite_seterror(bck_conn);\n            }\n            if (!PyErr_Occurred()) {\n"
            "                PyErr_SetString(pysqlite_OperationalError, sqlite3_errstr(rc));\n            }\n        }\n    }\n\n"
            "    if (!callback_error && rc == SQLITE_OK) {\n",
        ),
        (
            "ROLLBACK leaves rows to those that read them, as since CPython 3.11.",
            "        pysqlite_do_all_statements(self, ACTION_RESET, 1);\n",
            "",
        ),
        (
            "Each blob that is closed leaves the list, so it is gone through from its end.",
            "    for (i = 0; i < PyList_GET_SIZE(self->blobs); i++) {\n        weakref",
            "    for (i = (int)PyList_GET_SIZE(self->blobs) - 1; i >= 0; i--) {\n        if (i >= PyList_GET_SIZE(self->blobs)) {\n"
            "            continue;\n        }\n        weakref",
        ),
        (
            "The source of a backup may be closed.",
            "    if (!pysqlite_check_connection((pysqlite_Connection *)target)) {\n",
            "    if (!pysqlite_check_thread(self) || !pysqlite_check_connection(self)) {\n        return NULL;\n    }\n\n"
            "    if (!pysqlite_check_connection((pysqlite_Connection *)target)) {\n",
        ),
        (
            "The last close of a database merges the log, and may wait for another thread, which may wait for the GIL.",
            "        rc = sqlite3_close_v2(self->db);\n\n        if (rc != SQLITE_OK) {\n            _pysqlite_seterror(self->db);\n"
            "            return NULL;\n        } else {\n            self->db = NULL;\n        }\n",
            "        sqlite3 *db = self->db;\n        self->db = NULL;\n        Py_BEGIN_ALLOW_THREADS\n        rc = sqlite3_close_v2(db);\n"
            "        Py_END_ALLOW_THREADS\n        if (rc != SQLITE_OK) {\n            PyErr_SetString(pysqlite_OperationalError, sqlite3_errstr(rc));\n"
            "            return NULL;\n        }\n",
        ),
        (
            "So may the close of a connection that is dropped.",
            "    if (self->db) {\n        sqlite3_close_v2(self->db);\n    }\n",
            "    if (self->db) {\n        Py_BEGIN_ALLOW_THREADS\n        sqlite3_close_v2(self->db);\n        Py_END_ALLOW_THREADS\n    }\n",
        ),
        (
            "A closed connection has no database to open a blob in.",
            "    Py_BEGIN_ALLOW_THREADS\n    rc = sqlite3_blob_open(",
            "    if (!pysqlite_check_thread(self) || !pysqlite_check_connection(self)) {\n        return NULL;\n    }\n\n"
            "    Py_BEGIN_ALLOW_THREADS\n    rc = sqlite3_blob_open(",
        ),
        (
            "CPython has neither of the two, and they let go of a handler twice.",
            '    {"set_busy_handler", (PyCFunction)(void(*)(void))pysqlite_connection_set_busy_handler, METH_VARARGS|METH_KEYWORDS,\n'
            '        PyDoc_STR("Sets busy handler. Non-standard.")},\n'
            '    {"set_busy_timeout", (PyCFunction)(void(*)(void))pysqlite_connection_set_busy_timeout, METH_VARARGS|METH_KEYWORDS,\n'
            '        PyDoc_STR("Sets busy timeout. Non-standard.")},\n',
            "",
        ),
        (
            "Our methods, and the member that says what begins by itself.",
            "    {NULL, NULL}\n};\n\nstatic struct PyMemberDef connection_members[] =\n{\n",
            "    PLAIT_METHODS\n    {NULL, NULL}\n};\n\nstatic struct PyMemberDef connection_members[] =\n{\n"
            '    {"_autocommit", T_INT, offsetof(pysqlite_Connection, autocommit), 0},\n',
        ),
    ],
    "cursor.c": [
        (
            "A cursor is not initialized by a converter, while it is read.",
            "    Py_INCREF(connection);\n    Py_XSETREF(self->connection, connection);\n",
            '    if (self->locked) {\n        PyErr_SetString(pysqlite_ProgrammingError, "Recursive use of cursors not allowed.");\n        return -1;\n    }\n\n'
            "    if (!pysqlite_check_connection(connection)) {\n        return -1;\n    }\n\n"
            "    Py_INCREF(connection);\n    Py_XSETREF(self->connection, connection);\n",
        ),
        (
            "A converter must not close the cursor whose row it makes.",
            '                        "Base Cursor.__init__ not called.");\n        return NULL;\n    }\n    if (!pysqlite_check_thread(self->connection)',
            '                        "Base Cursor.__init__ not called.");\n        return NULL;\n    }\n    if (self->locked) {\n'
            '        PyErr_SetString(pysqlite_ProgrammingError, "Recursive use of cursors not allowed.");\n        return NULL;\n    }\n'
            "    if (!pysqlite_check_thread(self->connection)",
        ),
        (
            "The cursor is in use while a converter runs.",
            "            self->next_row = _pysqlite_fetch_one_row(self);\n            if (self->next_row == NULL) {\n",
            "            self->locked = 1;\n            self->next_row = _pysqlite_fetch_one_row(self);\n            self->locked = 0;\n"
            "            if (self->next_row == NULL) {\n",
        ),
        (
            "A script is not cut off at a NUL.",
            "        script_cstr = PyUnicode_AsUTF8(script_obj);\n        if (!script_cstr) {\n            return NULL;\n        }\n",
            "        Py_ssize_t size;\n        script_cstr = PyUnicode_AsUTF8AndSize(script_obj, &size);\n        if (!script_cstr) {\n"
            "            return NULL;\n        }\n        if (strlen(script_cstr) != (size_t)size) {\n"
            '            PyErr_SetString(PyExc_ValueError, "embedded null character");\n            return NULL;\n        }\n',
        ),
        (
            "Nothing begins by itself where autocommit says what does.",
            "    if (self->connection->begin_statement && self->statement->is_dml) {\n",
            "    if (self->connection->autocommit == -1 && self->connection->begin_statement && self->statement->is_dml) {\n",
        ),
        (
            "With autocommit=False a script belongs to the transaction that is open.",
            "    /* commit first */\n    result = pysqlite_connection_commit(self->connection, NULL);\n    if (!result) {\n        goto error;\n    }\n"
            "    Py_DECREF(result);\n",
            "    /* commit first */\n    if (self->connection->autocommit == -1) {\n        result = pysqlite_connection_commit(self->connection, NULL);\n"
            "        if (!result) {\n            goto error;\n        }\n        Py_DECREF(result);\n    }\n",
        ),
    ],
}


def fetch(folder):
    """The archive in that folder; pip fetches it if it is not there."""
    archive = Path(folder) / ARCHIVE
    if not archive.exists():
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-binary", ":all:"]
        subprocess.run([*pip, "--dest", str(folder), f"pysqlite3=={VERSION}"], check=True)
    return archive


def edited(name, text):
    for purpose, old, new, *times in EDITS.get(name, ()):
        if text.count(old) != (times or [1])[0]:
            raise SystemExit(f"{name} of pysqlite3 {VERSION} has the text of an edit {text.count(old)} times, not {(times or [1])[0]}, so the edit cannot be made: {purpose}")
        text = text.replace(old, new)
    return text


def unpack(archive, folder):
    """Writes the edited sources into the folder; the names of those in C."""
    if not archive.exists():
        raise SystemExit(f"the sources of pysqlite3 are not there ({archive}): build with `make wheel`, which fetches them")
    found = hashlib.sha256(archive.read_bytes()).hexdigest()
    if found != DIGEST:
        raise SystemExit(f"{archive} has the digest {found}, not {DIGEST}: remove it and build again; if that does not help, it is not what was pinned")
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    with tarfile.open(archive) as tar:
        for member in tar:
            place = re.fullmatch(rf"pysqlite3-{re.escape(VERSION)}/src/(\w+\.[ch])", member.name)
            if place:
                text = tar.extractfile(member).read().decode()
                (folder / place[1]).write_text(edited(place[1], text))
                made.append(place[1])
    missing = set(EDITS) - set(made)
    if missing:
        raise SystemExit(f"pysqlite3 {VERSION} has no {', '.join(sorted(missing))}")
    return sorted(str(folder / name) for name in made if name.endswith(".c"))


# They take something else than one integer, or change what all connections have.
NOT_SETTINGS = {"SQLITE_DBCONFIG_MAINDBNAME", "SQLITE_DBCONFIG_LOOKASIDE", "SQLITE_DBCONFIG_FP_DIGITS", "SQLITE_DBCONFIG_MAX"}


def constants(header):
    """The text of constants.h: the codes, limits and settings that SQLite's header has."""
    text = header.read_text()
    first, after = text.index("#define SQLITE_OK "), text.index("#define SQLITE_OPEN_READONLY")
    lists = {
        "CODES": re.findall(r"^#define (SQLITE_\w+) +(?:\d+|\(SQLITE_\w+ *\| *\(\d+<<8\)\))", text[first:after], re.MULTILINE),
        "LIMITS": re.findall(r"^#define (SQLITE_LIMIT_\w+) +\d+", text, re.MULTILINE),
        "SETTINGS": [n for n in re.findall(r"^#define (SQLITE_DBCONFIG_\w+) +\d+", text, re.MULTILINE) if n not in NOT_SETTINGS],
    }
    return "".join(f"#define {name} " + " ".join(f"X({each})" for each in entries) + "\n" for name, entries in lists.items())


if __name__ == "__main__":
    Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
    fetch(sys.argv[1])
