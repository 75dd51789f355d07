"""diskcache's Cache. It asks for WAL and synchronous=NORMAL by itself, and waits 60 s for a lock."""

from diskcache import Cache


DATABASES = ["cache.db"]


def prepare():
    """The constructor makes the tables."""
    Cache(".").close()


def worker(number, acknowledged):
    """Sets an entry, reads it and counts it."""
    cache = Cache(".")
    made = 0

    def operate():
        nonlocal made
        key = f"{number}/{made}"
        made += 1
        if cache.set(key, {"number": number, "made": made}):
            acknowledged.append(["set", key])
        if cache.get(key) != {"number": number, "made": made}:
            raise AssertionError("an entry is not read as it was set")
        cache.incr("entries")
        acknowledged.append(["counted", key])

    return operate


def missing(acknowledged):
    """Each entry is there, and the counter has counted each."""
    with Cache(".") as cache:
        keys = [key for what, key in acknowledged if what == "set"]
        if lost := [key for key in keys if key not in cache]:
            return f"{len(lost)} of {len(keys)} entries are missing"
        counted = sum(what == "counted" for what, _ in acknowledged)
        if cache["entries"] < counted:
            return f"{counted} entries were counted, and the counter says {cache['entries']}"
    return ""
