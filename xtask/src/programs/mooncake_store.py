# One of two clients of a Mooncake store. Only the server offers memory, so what the other puts and gets goes by the network.
import socket
import sys

import numpy
from mooncake.store import MooncakeDistributedStore

SIZE = 3 << 20


def pattern(seed):
    return numpy.random.default_rng(seed).integers(0, 256, SIZE, dtype=numpy.uint8).tobytes()


def store(host, offered, master):
    made = MooncakeDistributedStore()
    assert made.setup(host, "P2PHANDSHAKE", offered, 64 << 20, "rdma", "", master) == 0
    return made


if sys.argv[1] == "server":
    host, port, master = sys.argv[2], int(sys.argv[3]), sys.argv[4]
    made = store(host, 64 << 20, master)
    assert made.put("from the server", pattern(1)) == 0
    with socket.create_server((host, port)) as listener:
        peer, _ = listener.accept()
        assert peer.recv(1) == b"p"
        assert made.get("from the client") == pattern(2), "what was put is not here"
        peer.sendall(b"s")
        peer.recv(1)
else:
    host, server, port, master = sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5]
    made = store(host, 0, master)
    peer = socket.create_connection((server, port))
    assert made.get("from the server") == pattern(1), "what was got is something else"
    assert made.put("from the client", pattern(2)) == 0
    peer.sendall(b"p")
    assert peer.recv(1) == b"s", "the server did not find what was put"
    peer.sendall(b"e")
    print("verified")
made.close()
