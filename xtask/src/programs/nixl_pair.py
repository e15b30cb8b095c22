# One side of a test of NIXL on memory of the host: the client reads and overwrites the server's, and both look.
import socket
import sys

import numpy
from nixl_cu12 import nixl_agent, nixl_agent_config

SIZE = 4 << 20


def pattern(seed):
    return numpy.random.default_rng(seed).integers(0, 256, SIZE, dtype=numpy.uint8)


def send(peer, message):
    peer.sendall(len(message).to_bytes(4, "big") + message)


def receive(stream):
    return stream.read(int.from_bytes(stream.read(4), "big"))


role = sys.argv[1]
agent = nixl_agent(role, nixl_agent_config(backends=["UCX"]))
memory = numpy.zeros(SIZE, dtype=numpy.uint8)
assert agent.register_memory([(memory.ctypes.data, SIZE, 0, "")], "DRAM")
if role == "server":
    host, port = sys.argv[2], int(sys.argv[3])
    memory[:] = pattern(1)
    with socket.create_server((host, port)) as listener:
        peer, _ = listener.accept()
        stream = peer.makefile("rb")
        send(peer, agent.get_agent_metadata())
        send(peer, str(memory.ctypes.data).encode())
        assert receive(stream) == b"written"
        assert (memory == pattern(2)).all(), "what was written is not here"
        send(peer, b"seen")
        receive(stream)
else:
    server, port = sys.argv[3], int(sys.argv[4])
    peer = socket.create_connection((server, port))
    stream = peer.makefile("rb")
    name = agent.add_remote_agent(receive(stream))
    name = name.decode() if isinstance(name, bytes) else name
    local = agent.get_xfer_descs([(memory.ctypes.data, SIZE, 0)], "DRAM")
    remote = agent.get_xfer_descs([(int(receive(stream)), SIZE, 0)], "DRAM")

    def transfer(operation):
        handle = agent.initialize_xfer(operation, local, remote, name)
        state = agent.transfer(handle)
        while state == "PROC":
            state = agent.check_xfer_state(handle)
        assert state == "DONE", state
        agent.release_xfer_handle(handle)

    transfer("READ")
    assert (memory == pattern(1)).all(), "what was read is something else"
    memory[:] = pattern(2)
    transfer("WRITE")
    send(peer, b"written")
    assert receive(stream) == b"seen", "the server did not find what was written"
    agent.remove_remote_agent(name)
    send(peer, b"end")
    print("verified")
