# Behind loops.py: redis-py's Lock, which polls.
import redis

host, port = sys.argv[1].rsplit(":", 1)
client = redis.Redis(host=host, port=int(port), db=int(sys.argv[2] or 0))
serve(lambda name: client.lock(f"{name}-redis-py", timeout=300))
