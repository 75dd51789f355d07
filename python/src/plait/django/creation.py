"""Databases of tests. Django copies them as files, whose close would drop the locks of a database that is open here, and opens them with Python's own sqlite3."""

import contextlib
import os

from django.db.backends.sqlite3 import creation

from .. import sqlite3


@contextlib.contextmanager
def _with_ours():
    """Has Django's module find our sqlite3, for the time of a call."""
    theirs, creation.sqlite3 = creation.sqlite3, sqlite3
    try:
        yield
    finally:
        creation.sqlite3 = theirs


class DatabaseCreation(creation.DatabaseCreation):
    def _clone_test_db(self, suffix, verbosity, keepdb=False):
        source = self.connection.settings_dict["NAME"]
        if self.is_in_memory_db(source):
            with _with_ours():
                return super()._clone_test_db(suffix, verbosity, keepdb)
        target = str(self.get_test_db_clone_settings(suffix)["NAME"])
        if os.path.exists(target):
            if keepdb:
                return None
            os.remove(target)
        self.connection.ensure_connection()
        copy = sqlite3.connect(target)
        try:
            self.connection.connection.backup(copy)
        finally:
            copy.close()

    def setup_worker_connection(self, _worker_id):
        with _with_ours():
            return super().setup_worker_connection(_worker_id)
