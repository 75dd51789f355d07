"""Changes of the schema run alone, so they begin with BEGIN IMMEDIATE: that waits its turn, and is not refused at its end for what others have written meanwhile."""

from django.db.backends.sqlite3 import schema


class DatabaseSchemaEditor(schema.DatabaseSchemaEditor):
    def __enter__(self):
        self.connection.begins_alone = True
        try:
            return super().__enter__()
        finally:
            self.connection.begins_alone = False
