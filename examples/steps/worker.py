"""What torchrun starts: the ranks meet at MASTER_ADDR:MASTER_PORT, as torch.distributed's do, and learn the sum of all ranks."""

import os
import socket
import time

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
where = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))

if rank == 0:
    with socket.create_server(where, backlog=size) as server:
        others = [server.accept()[0] for _ in range(size - 1)]
        total = sum(int(conn.makefile().readline()) for conn in others)
        for conn in others:
            conn.sendall(b"%d\n" % total)
            conn.close()
else:
    for _ in range(300):  # rank 0 may start later
        try:
            conn = socket.create_connection(where, timeout=60)
            break
        except OSError:
            time.sleep(0.1)
    else:
        raise SystemExit(f"rank {rank}: nobody answers at {where}")
    with conn:
        conn.sendall(b"%d\n" % rank)
        total = int(conn.makefile().readline())

print(f"rank {rank} of {size} on {os.environ['SLURMD_NODENAME']}: the sum of all ranks is {total}")
