# One side of a test of Mooncake's transfer engine: the client reads and overwrites the server's memory, and both look.
import socket
import sys

import numpy
from mooncake.engine import TransferEngine

SIZE = 8 << 20
BLOCK, BLOCKS = 4096, 64


def pattern(seed):
    return numpy.random.default_rng(seed).integers(0, 256, SIZE, dtype=numpy.uint8)


def engine(host, memory):
    made = TransferEngine()
    # No list of devices: it has to find them.
    assert made.initialize(host, "P2PHANDSHAKE", "rdma", "") == 0
    assert made.register_memory(memory.ctypes.data, SIZE) == 0
    return made


memory = numpy.zeros(SIZE, dtype=numpy.uint8)
if sys.argv[1] == "server":
    host, port = sys.argv[2], int(sys.argv[3])
    memory[:] = pattern(1)
    made = engine(host, memory)
    with socket.create_server((host, port)) as listener:
        peer, _ = listener.accept()
        peer.sendall(f"{host}:{made.get_rpc_port()} {memory.ctypes.data}\n".encode())
        assert peer.recv(1) == b"w"
        assert (memory == pattern(2)).all(), "what was written is not here"
        peer.sendall(b"s")
        peer.recv(1)
else:
    host, server, port = sys.argv[2], sys.argv[3], int(sys.argv[4])
    made = engine(host, memory)
    peer = socket.create_connection((server, port))
    segment, address = peer.makefile().readline().split()
    ours, theirs = memory.ctypes.data, int(address)
    assert made.transfer_sync_read(segment, ours, theirs, SIZE) == 0
    assert (memory == pattern(1)).all(), "what was read is something else"
    memory[:] = pattern(2)
    # The beginning in many small pieces, the rest in one.
    small = BLOCK * BLOCKS
    pieces = range(0, small, BLOCK)
    sources, targets = [ours + piece for piece in pieces], [theirs + piece for piece in pieces]
    assert made.batch_transfer_sync_write(segment, sources, targets, [BLOCK] * BLOCKS) == 0
    assert made.transfer_sync_write(segment, ours + small, theirs + small, SIZE - small) == 0
    peer.sendall(b"w")
    assert peer.recv(1) == b"s", "the server did not find what was written"
    print("verified")
