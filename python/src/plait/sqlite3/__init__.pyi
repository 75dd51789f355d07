# The types are those that checkers have for Python's sqlite3.
from sqlite3 import *
