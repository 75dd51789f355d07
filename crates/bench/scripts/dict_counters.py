"""Counters in a dictionary, raised by a pool of threads.

Standard input: {"threads", "transactions", "distinct_keys", "hold_s"} as JSON; distinct_keys tells whether each
transaction has a key of its own instead of all having one. Standard output: {"seconds", "sum", "keys"}. The time
includes making, closing and joining the pool. One lock guards a transaction, as a program with threads needs.
"""

import json
import sys
import threading
import time
from multiprocessing.pool import ThreadPool


def main():
    load = json.load(sys.stdin)
    distinct, hold_s = load["distinct_keys"], load["hold_s"]
    counters = {}
    lock = threading.Lock()

    def transaction(number):
        key = number if distinct else 0
        with lock:
            try:
                count = counters[key]
                if hold_s:
                    time.sleep(hold_s)
                counters[key] = count + 1
            except KeyError:
                if hold_s:
                    time.sleep(hold_s)
                counters[key] = 1

    begun = time.perf_counter()
    pool = ThreadPool(load["threads"])
    pool.map(transaction, range(load["transactions"]))
    pool.close()
    pool.join()
    seconds = time.perf_counter() - begun
    json.dump({"seconds": seconds, "sum": sum(counters.values()), "keys": len(counters)}, sys.stdout)


main()
