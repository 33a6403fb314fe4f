"""A stand-in for Ray: a head that hands out work, workers that do it, and a driver that asks for it. Needs nothing but Python.

pool.py head PORT | pool.py worker HOST PORT | pool.py driver HOST PORT N
"""

import os
import socket
import sys
import time
from multiprocessing.managers import BaseManager
from queue import Empty, Queue

key = os.environ["SLURM_JOB_ID"].encode()


class Manager(BaseManager):
    pass


def connect(host, port):
    for name in ("todo", "done", "over"):
        Manager.register(name)
    try:
        host = socket.gethostbyname(host)
    except OSError:  # nodes of `sluice up` are this machine
        host = "127.0.0.1"
    manager = Manager((host, port), key)
    for _ in range(300):  # the head may start later
        try:
            manager.connect()
            return manager
        except OSError:
            time.sleep(0.1)
    raise SystemExit(f"no head answers at {host}:{port}")


def head(port):
    todo, done, over = Queue(), Queue(), Queue()
    Manager.register("todo", lambda: todo)
    Manager.register("done", lambda: done)
    Manager.register("over", lambda: over)
    manager = Manager(("", int(port)), key)
    server = manager.get_server()
    print(f"head on {os.environ['SLURMD_NODENAME']}", flush=True)
    server.serve_forever()


def worker(host, port):
    manager = connect(host, int(port))
    todo, done, over = manager.todo(), manager.done(), manager.over()
    done.put((None, None, os.environ["SLURMD_NODENAME"]))  # it is there
    while over.empty():
        try:
            n = todo.get(timeout=0.1)
        except Empty:
            continue
        done.put((n, n * n, os.environ["SLURMD_NODENAME"]))


def driver(host, port, n):
    manager = connect(host, int(port))
    todo, done = manager.todo(), manager.done()
    workers = sorted(done.get()[2] for _ in range(int(os.environ["SLURM_NNODES"])))  # one on each node
    for i in range(int(n)):
        todo.put(i)
    results = [done.get() for _ in range(int(n))]
    manager.over().put(True)
    print(f"the sum of {n} squares is {sum(r[1] for r in results)}, from workers on {', '.join(workers)}")


if __name__ == "__main__":
    {"head": head, "worker": worker, "driver": driver}[sys.argv[1]](*sys.argv[2:])
