"""A shop for tickets, as one writes it first: Flask, a connection for each request, WAL mode. It knows nothing of Plait."""

import os
import sqlite3

from flask import Flask, g

# Or BEGIN IMMEDIATE: it waits for its turn, and cures much on stock SQLite, too.
BEGIN = os.environ.get("BEGIN", "BEGIN")

app = Flask(__name__)


def database():
    """The connection of this request."""
    if "database" not in g:
        g.database = sqlite3.connect(os.environ["DATABASE"], isolation_level=None)
        g.database.execute("PRAGMA journal_mode=WAL")
    return g.database


@app.teardown_appcontext
def close(_error):
    """Closes the connection with its request, and with it a transaction that has failed."""
    if "database" in g:
        g.database.close()


@app.errorhandler(sqlite3.OperationalError)
def failed(error):
    """What the visitor sees of "database is locked"."""
    return str(error), 500


@app.get("/")
def shows():
    """What can be bought."""
    rows = database().execute("SELECT id, title, seats FROM shows").fetchall()
    return {"shows": rows}


@app.post("/buy/<int:show>")
def buy(show):
    """Sells a ticket, unless there is none left."""
    connection = database()
    connection.execute(BEGIN)
    (seats,) = connection.execute("SELECT seats FROM shows WHERE id=?", (show,)).fetchone()
    if seats == 0:
        return "sold out", 409
    connection.execute("UPDATE shows SET seats=? WHERE id=?", (seats - 1, show))
    connection.execute("INSERT INTO sales(show, seat) VALUES(?, ?)", (show, seats))
    connection.execute("COMMIT")
    return "bought", 200
