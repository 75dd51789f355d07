"""Django's sqlite3 backend on plait.sqlite3.

    DATABASES = {"default": {"ENGINE": "plait.django", "NAME": BASE_DIR / "app.db"}}

A file becomes concurrent when it is first connected to, and stays that. `atomic` begins with BEGIN CONCURRENT, so transactions write beside each other; one that
meets another is refused, and plait.retry around `atomic` runs it again. OPTIONS has what the sqlite3 backend has, and "transaction_mode" may be "CONCURRENT", which is
the default.
"""

import datetime
import decimal
from collections.abc import Mapping
from itertools import tee

from django.core.exceptions import ImproperlyConfigured
from django.db.backends.sqlite3 import base
from django.utils.dateparse import parse_date, parse_datetime, parse_time

from ..mode import make_concurrent
from ..retrying import begin
from ..sqlite3 import dbapi2 as Database
from .creation import DatabaseCreation
from .features import DatabaseFeatures
from .schema import DatabaseSchemaEditor

# Those that Django gives Python's module.
Database.register_converter("bool", b"1".__eq__)
Database.register_converter("date", base.decoder(parse_date))
Database.register_converter("time", base.decoder(parse_time))
Database.register_converter("datetime", base.decoder(parse_datetime))
Database.register_converter("timestamp", base.decoder(parse_datetime))
Database.register_adapter(decimal.Decimal, str)
Database.register_adapter(datetime.date, datetime.date.isoformat)
Database.register_adapter(datetime.datetime, lambda moment: moment.isoformat(" "))

_MODES = frozenset(["CONCURRENT", "DEFERRED", "EXCLUSIVE", "IMMEDIATE"])


class CursorWrapper(Database.Cursor):
    """Django's parameters are %s and %(name)s, those of SQLite ? and :name."""

    convert_query = base.SQLiteCursorWrapper.convert_query

    def execute(self, query, params=None):
        if params is None:
            return super().execute(query)
        names = list(params) if isinstance(params, Mapping) else None
        return super().execute(self.convert_query(query, param_names=names), params)

    def executemany(self, query, param_list):
        ahead, param_list = tee(iter(param_list))
        first = next(ahead, None)
        names = list(first) if first and isinstance(first, Mapping) else None
        return super().executemany(self.convert_query(query, param_names=names), param_list)


class DatabaseWrapper(base.DatabaseWrapper):
    display_name = "SQLite with Plait"
    Database = Database
    SchemaEditorClass = DatabaseSchemaEditor
    creation_class = DatabaseCreation
    features_class = DatabaseFeatures
    transaction_modes = _MODES
    # While a change of the schema begins: schema.py.
    begins_alone = False

    def get_connection_params(self):
        params = super().get_connection_params()
        # Django before 5.1 leaves these two where they are.
        mode = params.pop("transaction_mode", None) or getattr(self, "transaction_mode", None) or "CONCURRENT"
        if mode.upper() not in _MODES:
            raise ImproperlyConfigured(
                f"settings.DATABASES[{self.alias!r}]['OPTIONS']['transaction_mode'] is {mode!r}: say one of {', '.join(sorted(_MODES))}"
            )
        self.transaction_mode = mode.upper()
        commands = params.pop("init_command", None)
        if commands is not None or not hasattr(self, "init_commands"):
            self.init_commands = (commands or "").split(";")
        return params

    def get_new_connection(self, conn_params):
        conn = Database.connect(**conn_params)
        try:
            base.register_functions(conn)
            conn.execute("PRAGMA foreign_keys = ON")
            conn.execute("PRAGMA legacy_alter_table = OFF")
            if not conn_params["database"] or "mode=ro" not in str(conn_params["database"]):
                make_concurrent(conn, conn_params.get("timeout", 5.0))
            for command in self.init_commands:
                if command.strip():
                    conn.execute(command)
        except BaseException:
            conn.close()
            raise
        return conn

    def create_cursor(self, name=None):
        return self.connection.cursor(factory=CursorWrapper)

    def _start_transaction_under_autocommit(self):
        if self.begins_alone:
            self.cursor().execute("BEGIN IMMEDIATE")
        elif self.transaction_mode == "CONCURRENT":
            self.cursor().execute(begin())
        else:
            self.cursor().execute(f"BEGIN {self.transaction_mode}")
