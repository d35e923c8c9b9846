import sys

from kazoo.client import KazooClient

servers, path, patterns = sys.argv[1], sys.argv[2], sys.argv[3:]
client = KazooClient(hosts=servers)
client.start(timeout=60)
lock = client.Lock(path, extra_lock_patterns=patterns)
print("ready", flush=True)
for order in sys.stdin:
    order = order.strip()
    if order == "try":
        print("held" if lock.acquire(blocking=False) else "busy", flush=True)
    elif order == "acquire":
        lock.acquire()
        print("held", flush=True)
    elif order == "release":
        lock.release()
        print("released", flush=True)
client.stop()
