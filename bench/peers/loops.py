"""What a peer in Python does, told line by line; each answer ends with a line that is a dot.

pair NAME                           acquires and releases: the nanoseconds of both
throughput NAME TASKS SECONDS       a thread and a name each: how many pairs
contend NAME FIRST AFTER_LAST END   a thread for each waiter, until the moment: each hold
"""

import sys
import threading
import time

now = time.monotonic_ns


def pair(lock):
    begin = now()
    lock.acquire()
    held = now()
    lock.release()
    return held - begin, now() - held


def throughput(make, name, tasks, seconds):
    counts = [0] * tasks
    locks = [make(f"{name}-{task}") for task in range(tasks)]
    end = now() + int(seconds * 1e9)

    def work(task):
        while now() < end:
            pair(locks[task])
            counts[task] += 1

    together(work, range(tasks))
    return sum(counts)


def contend(make, name, waiters, end):
    holds = []

    def work(waiter):
        lock = make(name)
        while True:
            asked = now()
            if asked >= end:
                return
            lock.acquire()
            acquired = now()
            holds.append((waiter, asked, acquired, now()))
            lock.release()

    together(work, waiters)
    return holds


def together(work, numbers):
    threads = [threading.Thread(target=work, args=(number,)) for number in numbers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def serve(make):
    known = {}
    print("ready\n.", flush=True)
    for line in sys.stdin:
        order, name, *rest = line.split()
        if order == "pair":
            if name not in known:
                known[name] = make(name)
            print(*pair(known[name]))
        elif order == "throughput":
            print(throughput(make, name, int(rest[0]), float(rest[1])))
        elif order == "contend":
            for hold in contend(make, name, range(int(rest[0]), int(rest[1])), int(rest[2])):
                print(*hold)
        print(".", flush=True)
