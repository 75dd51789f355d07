"""diskcache's FanoutCache, on which its cache for Django stands: 8 files, WAL mode, and 10 ms for a lock by default.

After that time it drops what was to be set, and says so by False alone.
"""

from diskcache import FanoutCache

SHARDS = 8
DATABASES = [f"{shard:03}/cache.db" for shard in range(SHARDS)]


def prepare():
    """The constructor makes the tables."""
    FanoutCache(".").close()


def worker(number, acknowledged):
    """Sets an entry and reads it."""
    cache = FanoutCache(".")
    made = 0

    def operate():
        nonlocal made
        key = f"{number}/{made}"
        made += 1
        if not cache.set(key, made):
            raise TimeoutError("database is locked: the entry was dropped")
        acknowledged.append([key, made])
        if cache.get(key) != made:
            raise AssertionError("an entry is not read as it was set")

    return operate


def missing(acknowledged):
    """Each entry is there."""
    with FanoutCache(".") as cache:
        lost = [key for key, made in acknowledged if cache.get(key, retry=True) != made]
    return f"{len(lost)} of {len(acknowledged)} entries are missing" if lost else ""
