"""What the database can: Django asks Python's copy of SQLite for its version, which may be older than the one that is used."""

from django.db.backends.sqlite3 import features


class DatabaseFeatures(features.DatabaseFeatures):
    minimum_database_version = features.DatabaseFeatures.minimum_database_version
    can_alter_table_drop_column = True
    can_return_columns_from_insert = True
    can_return_rows_from_bulk_insert = True
