"""A ping-pong of two MPI ranks over messages of many sizes, every byte checked."""

import hashlib
import time

from mpi4py import MPI

world = MPI.COMM_WORLD
rank, peer = world.Get_rank(), 1 - world.Get_rank()
ROUNDS = 20
slowest = 0.0
for size in [0, 1, 8, 1000, 4096, 65536, 1 << 20]:
    for turn in range(ROUNDS):
        seed = hashlib.sha256(f"{size} {turn}".encode()).digest()
        sent = bytearray((seed * (size // len(seed) + 1))[:size])
        received = bytearray(size)
        started = time.monotonic()
        if rank == 0:
            world.Send([sent, MPI.BYTE], dest=peer)
            world.Recv([received, MPI.BYTE], source=peer)
        else:
            world.Recv([received, MPI.BYTE], source=peer)
            world.Send([received, MPI.BYTE], dest=peer)
        slowest = max(slowest, time.monotonic() - started)
        assert received == sent, f"{size} bytes, turn {turn}: not what was sent"
if rank == 0:
    print(f"pingpong: all bytes right, slowest turn {slowest * 1e3:.1f} ms")
