"""A stand-in for a distributed training program: ranks meet at MASTER_ADDR:MASTER_PORT, and each learns the sum of what all have.

It takes rank and size from srun, as torch.distributed, JAX and MPI programs do, and needs nothing but Python.
"""

import json
import os
import socket
import time

rank = int(os.environ["SLURM_PROCID"])
size = int(os.environ["SLURM_NTASKS"])
host, port = os.environ.get("MASTER_ADDR", "127.0.0.1"), int(os.environ.get("MASTER_PORT", "29500"))


def address():
    """The first node's address; nodes of `sluice up` have names that nobody resolves, and are this machine."""
    try:
        return socket.gethostbyname(host)
    except OSError:
        return "127.0.0.1"


def say(conn, value):
    conn.sendall(json.dumps(value).encode() + b"\n")


def hear(conn):
    with conn.makefile() as lines:
        return json.loads(lines.readline())


def first():
    """Rank 0 collects from the others, and tells them the sum."""
    with socket.create_server(("", port), backlog=size) as server:
        others = [server.accept()[0] for _ in range(size - 1)]
        total = sum(hear(conn) for conn in others)
        for conn in others:
            say(conn, total)
            conn.close()
    return total


def other():
    for _ in range(300):  # rank 0 may start later
        try:
            conn = socket.create_connection((address(), port), timeout=60)
            break
        except OSError:
            time.sleep(0.1)
    else:
        raise SystemExit(f"rank {rank}: nobody answers at {host}:{port}")
    with conn:
        say(conn, rank)
        return hear(conn)


total = first() if rank == 0 else other()
print(f"rank {rank} of {size} on {os.environ['SLURMD_NODENAME']}: the sum of all ranks is {total}")
