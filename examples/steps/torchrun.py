"""A stand-in for torchrun: agents on several nodes agree on who has which ranks, and start the workers. Needs nothing but Python.

torchrun.py --nnodes N --nproc_per_node N --rdzv_id ID --rdzv_backend c10d --rdzv_endpoint HOST:PORT SCRIPT [ARGUMENT ...]
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import time

parser = argparse.ArgumentParser()
parser.add_argument("--nnodes", type=int, required=True)
parser.add_argument("--nproc_per_node", type=int, default=1)
parser.add_argument("--rdzv_id", default="none")
parser.add_argument("--rdzv_backend", choices=["c10d"], default="c10d")
parser.add_argument("--rdzv_endpoint", required=True)
parser.add_argument("script")
parser.add_argument("arguments", nargs=argparse.REMAINDER)
args = parser.parse_args()
host, port = args.rdzv_endpoint.rsplit(":", 1)


def serve(server):
    """The agent that could listen gives out the numbers of the nodes, and keeps number 0 to itself."""
    others = [server.accept()[0] for _ in range(args.nnodes - 1)]
    with socket.socket() as free:  # where rank 0 will listen
        free.bind((host, 0))
        master = free.getsockname()[1]
    for number, conn in enumerate(others, 1):
        with conn:
            conn.sendall(json.dumps([args.rdzv_id, number, master]).encode())
    return 0, master


def join():
    for _ in range(300):  # the first agent may start later
        try:
            with socket.create_connection((host, int(port)), timeout=60) as conn:
                job, number, master = json.loads(conn.makefile().read())
            break
        except OSError:
            time.sleep(0.1)
    else:
        raise SystemExit(f"torchrun: nobody answers at {args.rdzv_endpoint}")
    if job != args.rdzv_id:
        raise SystemExit(f"torchrun: {args.rdzv_endpoint} belongs to {job}, and not to {args.rdzv_id}")
    return number, master


try:
    with socket.create_server((host, int(port)), backlog=args.nnodes) as server:
        node, master = serve(server)
except OSError:
    node, master = join()

workers = []
for local in range(args.nproc_per_node):
    env = dict(
        os.environ,
        RANK=str(node * args.nproc_per_node + local),
        LOCAL_RANK=str(local),
        WORLD_SIZE=str(args.nnodes * args.nproc_per_node),
        MASTER_ADDR=host,
        MASTER_PORT=str(master),
    )
    workers.append(subprocess.Popen([sys.executable, args.script, *args.arguments], env=env))
sys.exit(max(w.wait() for w in workers))
