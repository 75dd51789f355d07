"""persist-queue's SQLiteQueue with several producers. It asks for WAL itself, and waits 10 s for a lock."""

from persistqueue import SQLiteQueue


DATABASES = ["data.db"]


def prepare():
    """The constructor makes the table."""
    SQLiteQueue(".").close()


def worker(number, acknowledged):
    """Puts items."""
    queue = SQLiteQueue(".")
    made = 0

    def operate():
        nonlocal made
        item = f"{number}/{made}"
        made += 1
        queue.put(item)
        acknowledged.append(item)

    return operate


def missing(acknowledged):
    """Each item is there, once."""
    queue = SQLiteQueue(".")
    there = [row["data"] for row in queue.queue()]
    queue.close()
    if lost := set(acknowledged) - set(there):
        return f"{len(lost)} of {len(acknowledged)} items are missing"
    return "" if len(there) == len(set(there)) else "an item is there twice"
