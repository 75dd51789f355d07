"""writer.py FILE COUNT: adds 1 to a row COUNT times, beside whoever else does, and prints what is there and whose library it is."""

import sqlite3
import sys

file, count = sys.argv[1], int(sys.argv[2])
db = sqlite3.connect(file, timeout=20, isolation_level=None)
db.execute("CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, n INT)")
db.execute("INSERT OR IGNORE INTO t VALUES(1, 0)")
for _ in range(count):
    db.execute("UPDATE t SET n = n + 1 WHERE id = 1")
print(*db.execute("SELECT n, plait_version() FROM t").fetchone())
db.close()
