# Behind loops.py: kazoo's Lock, the classic recipe.
from kazoo.client import KazooClient

client = KazooClient(hosts=sys.argv[1], timeout=40)
client.start()
serve(lambda name: client.Lock(f"{sys.argv[2]}/{name}-kazoo"))
client.stop()
