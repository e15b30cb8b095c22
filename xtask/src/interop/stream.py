"""One side of a verified exchange between two iWARP devices, for what no ready-made program checks.

    stream.py MODE PORT ADDRESS server|client

MODE is `transfer` or `short-transfer` (every operation, every byte compared), `private-data`, `reject` or the name of an error (see MODES).
ADDRESS is the server's. Both sides judge: each exits with status 0 only if it saw what it must. What they have to agree upon
travels over TCP; the connection manager listens at the next port but 999.

What is expected is what the RFCs say. There is no acknowledgement on this wire: a WRITE or SEND is complete when TCP has taken
it, and a refusal ends the connection later. Where Linux's siw differs, it is said here and in docs/interop.md.
"""
import faulthandler
import json
import os
import random
import signal
import socket
import sys
import time

import pyverbs.cm_enums as ce
import pyverbs.enums as e
from pyverbs.cmid import AddrInfo, CMEvent, CMEventChannel, CMID, ConnParam
from pyverbs.cq import CQ
from pyverbs.mr import MR
from pyverbs.pyverbs_error import PyverbsError
from pyverbs.qp import QPCap, QPInitAttr

SIZE = 8 << 20
SIZES = [0, 1, 2, 3, 4, 5, 64, 1023, 1424, 1425, 1428, 1429, 4096, 65521, 65536, 200001, 1 << 20, SIZE]
EVERY_ACCESS = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ
# No step takes that long, on any machine; but the peer may take its time to start.
PATIENCE = 60
START_PATIENCE = 100
DEPTH = 4
# siw's own limit: its length is a byte, of which the enhanced start-up takes four.
PRIVATE_DATA = 251


class Nothing(int):
    """A length of 0 that is true: pyverbs takes one that is false for that of all the memory."""

    def __bool__(self):
        return True


NOTHING = Nothing(0)


def pattern(length, seed):
    return random.Random(seed).randbytes(length)


def same(found, wanted, what):
    if found != wanted:
        at = next((i for i, (a, b) in enumerate(zip(found, wanted)) if a != b), min(len(found), len(wanted)))
        raise SystemExit(f'{what}: wrong data at byte {at} of {len(wanted)}')


def step(patience=PATIENCE):
    """The next step begins. Some calls wait for ever; then it is said where."""
    faulthandler.dump_traceback_later(patience, exit=True)


class Line:
    """The TCP connection over which both sides agree."""

    def __init__(self, address, port, client):
        family = socket.AF_INET6 if ':' in address else socket.AF_INET
        if client:
            self.socket = socket.create_connection((address, port), PATIENCE)
        else:
            with socket.create_server((address, port), family=family) as listener:
                listener.settimeout(START_PATIENCE)
                self.socket, _ = listener.accept()
        self.socket.settimeout(PATIENCE)
        # For reading alone: a text file that is also written to forgets what it has read ahead.
        self.lines = self.socket.makefile('r')

    def exchange(self, value):
        step()
        self.socket.sendall((json.dumps(value) + '\n').encode())
        return json.loads(self.lines.readline())

    def meet(self):
        self.exchange(None)


class Endpoint:
    """One end of a connection, and its memory."""

    def __init__(self, line, address, port, client):
        self.line, self.client = line, client
        self.channel = CMEventChannel()
        self.id = CMID(creator=self.channel, port_space=ce.RDMA_PS_TCP)
        if client:
            where = AddrInfo(dst=address, dst_service=str(port), port_space=ce.RDMA_PS_TCP)
            line.meet()
            self.id.resolve_addr(where, 2000)
            self.event(ce.RDMA_CM_EVENT_ADDR_RESOLVED)
            self.id.resolve_route(2000)
            self.event(ce.RDMA_CM_EVENT_ROUTE_RESOLVED)
        else:
            where = AddrInfo(src=address, src_service=str(port), port_space=ce.RDMA_PS_TCP, flags=ce.RAI_PASSIVE)
            self.id.bind_addr(where)
            self.id.listen(4)
            line.meet()
            self.listener = self.id
            self.request = self.next_event(ce.RDMA_CM_EVENT_CONNECT_REQUEST)
            self.asked = self.request.private_data
            self.id = CMID(creator=self.request, listen_id=self.listener)
            self.request.ack_cm_event()

    def prepare(self):
        """A queue pair and memory."""
        self.cq = CQ(self.id.context, 256)
        capacity = QPCap(max_send_wr=64, max_recv_wr=64, max_send_sge=1, max_recv_sge=1)
        self.id.create_qp(QPInitAttr(qp_type=e.IBV_QPT_RC, scq=self.cq, rcq=self.cq, cap=capacity, sq_sig_all=1))
        self.memory = MR(self.id.pd, SIZE, EVERY_ACCESS)
        self.landing = MR(self.id.pd, SIZE, EVERY_ACCESS)
        self.closed = MR(self.id.pd, 4096, e.IBV_ACCESS_LOCAL_WRITE)

    def parameters(self, data=b''):
        parameters = ConnParam(resources=DEPTH, depth=DEPTH, retry=7, rnr_retry=7, data_len=len(data))
        if data:
            parameters.set_private_data(data)
        return parameters

    def connect(self):
        """Asks, or accepts; returns when both are connected."""
        if self.client:
            self.id.connect(self.parameters())
        else:
            self.id.accept(self.parameters())
        self.event(ce.RDMA_CM_EVENT_ESTABLISHED)
        self.peer = self.line.exchange(dict(key=self.memory.rkey, address=self.memory.buf, closed_key=self.closed.rkey,
                                            closed_address=self.closed.buf, is_siw=self.is_siw()))

    def is_siw(self):
        name = self.id.context.name
        return (name.decode() if isinstance(name, bytes) else name).startswith('siw')

    def next_event(self, wanted):
        event = CMEvent(self.channel)
        if event.event_type != wanted:
            raise SystemExit(f'event {event.event_str()}, not {wanted}')
        return event

    def event(self, wanted):
        event = self.next_event(wanted)
        data = event.private_data
        event.ack_cm_event()
        return data

    def completion(self):
        found = self.completion_within(PATIENCE - 5)
        if found is None:
            raise SystemExit('no completion came')
        return found

    def completion_within(self, patience):
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            count, found = self.cq.poll(1)
            if count:
                return found[0]
        return None

    def expect(self, status, what):
        found = self.completion()
        if found.status != status:
            raise SystemExit(f'{what}: completion status {found.status}, not {status}')
        return found

    def write(self, length, address=None, key=None):
        address = self.peer['address'] if address is None else address
        key = self.peer['key'] if key is None else key
        self.id.post_write(self.memory, length, address, key, e.IBV_SEND_SIGNALED)

    def read(self, length, address=None, key=None):
        address = self.peer['address'] if address is None else address
        key = self.peer['key'] if key is None else key
        self.id.post_read(self.landing, length, address, key, e.IBV_SEND_SIGNALED)

    def send(self, length):
        self.id.post_send(self.memory, e.IBV_SEND_SIGNALED, length or NOTHING)

    def good(self, what):
        return self.expect(e.IBV_WC_SUCCESS, what)

    def gone(self, what):
        """Work that has left is complete, whatever the peer says of it. siw calls it an error if the peer is quick to say it."""
        status = self.completion().status
        if status != e.IBV_WC_SUCCESS and not (self.is_siw() and status == e.IBV_WC_LOC_QP_OP_ERR):
            raise SystemExit(f'{what}: completion status {status}')

    def part(self):
        """Ends the connection, as it should."""
        self.line.meet()
        if self.client:
            self.id.disconnect()
        self.event(ce.RDMA_CM_EVENT_DISCONNECTED)
        if not self.client:
            self.id.disconnect()

    def is_over(self):
        """The other side ended the connection: an event, and nothing more can be done on it."""
        self.event(ce.RDMA_CM_EVENT_DISCONNECTED)
        # siw takes work and never completes it, once its queue pair is in error.
        if self.is_siw():
            return
        self.write(64)
        self.expect(e.IBV_WC_WR_FLUSH_ERR, 'later work')


def transfer(sizes):
    """SEND, WRITE and READ of every size, both ways round; then several under way at once."""
    def run(end):
        end.prepare()
        if not end.client:
            for _ in sizes:
                end.id.post_recv(end.landing)
        end.connect()
        for number, length in enumerate(sizes):
            data = pattern(length, number)
            end.line.meet()
            if end.client:
                end.memory.write(data, length, 0)
                end.send(length)
                end.good('SEND')
            else:
                found = end.good('receive')
                if found.byte_len != length:
                    raise SystemExit(f'{found.byte_len} bytes came, not {length}')
                same(end.landing.read(length, 0), data, f'SEND of {length}')
            end.line.meet()
        for number, length in enumerate(sizes):
            for writer in (True, False):
                data = pattern(length, 100 + number + 50 * writer)
                end.line.meet()
                if end.client == writer:
                    end.memory.write(data, length, 0)
                    end.write(length, end.peer['address'] + SIZE - length)
                    end.read(length, end.peer['address'] + SIZE - length)
                    end.good('WRITE')
                    end.good('READ')
                    # A READ sees what an earlier WRITE wrote.
                    same(end.landing.read(length, 0), data, f'READ of {length}')
                end.line.meet()
                if end.client != writer:
                    same(end.memory.read(length, SIZE - length), data, f'WRITE of {length}')
        streams(end)
        end.part()
    return run


def streams(end):
    """Sixteen WRITEs and sixteen READs of 16 KiB both ways at the same time, all posted before the first is waited for."""
    length, count = 16384, 16
    data = pattern(length, 4711 + end.client)
    end.memory.write(data, length, 0)
    end.line.meet()
    for i in range(count):
        end.write(length, end.peer['address'] + (1 + i) * length)
    for i in range(count):
        end.read(length, end.peer['address'] + (1 + i) * length)
    for _ in range(2 * count):
        end.good('stream')
    same(end.landing.read(length, 0), data, 'READs')
    end.line.meet()
    theirs = pattern(length, 4711 + (not end.client))
    for i in range(count):
        same(end.memory.read(length, (1 + i) * length), theirs, f'WRITE {i}')


def private_data(end):
    """Each side gets what the other one's program said."""
    end.prepare()
    question, answer = pattern(PRIVATE_DATA, 1), pattern(PRIVATE_DATA, 2)
    if end.client:
        end.id.connect(end.parameters(question))
        same(end.event(ce.RDMA_CM_EVENT_ESTABLISHED), answer, 'the answer')
    else:
        same(end.asked, question, 'the question')
        end.id.accept(end.parameters(answer))
        end.event(ce.RDMA_CM_EVENT_ESTABLISHED)
    end.part()


def reject(end):
    """A connection that is refused, with a word why."""
    answer = pattern(100, 3)
    if end.client:
        end.prepare()
        end.id.connect(end.parameters())
        same(end.event(ce.RDMA_CM_EVENT_REJECTED), answer, 'the refusal')
    else:
        end.id.reject(answer)
    end.line.meet()


def refused(post, reads=False):
    """Work that the server must refuse: it does not touch memory, and the connection ends."""
    def run(end):
        end.prepare()
        end.connect()
        if end.client:
            post(end)
            # A WRITE is complete when it has gone; a READ never gets its answer.
            if reads:
                # siw does not look into a Terminate for whom it is.
                end.expect(e.IBV_WC_WR_FLUSH_ERR if end.is_siw() else e.IBV_WC_REM_ACCESS_ERR, 'the READ')
            else:
                end.gone('the WRITE')
            end.is_over()
            end.line.meet()
            return
        before, closed = end.memory.read(SIZE, 0), end.closed.read(4096, 0)
        end.event(ce.RDMA_CM_EVENT_DISCONNECTED)
        end.line.meet()
        same(end.memory.read(SIZE, 0), before, 'refused work')
        same(end.closed.read(4096, 0), closed, 'refused work')
    return run


def read_forbidden(end):
    """siw answers READs of memory that nobody may read."""
    end.prepare()
    end.connect()
    if not end.client and end.is_siw():
        end.line.meet()
        return end.part()
    if end.client and end.peer['is_siw']:
        end.read(64, end.peer['closed_address'], end.peer['closed_key'])
        end.good('the READ that siw should refuse')
        end.line.meet()
        return end.part()
    if end.client:
        end.read(64, end.peer['closed_address'], end.peer['closed_key'])
        end.expect(e.IBV_WC_WR_FLUSH_ERR if end.is_siw() else e.IBV_WC_REM_ACCESS_ERR, 'the READ')
        end.is_over()
    else:
        end.event(ce.RDMA_CM_EVENT_DISCONNECTED)
    end.line.meet()


def too_long(end):
    """A SEND longer than the receive that takes it: the receive fails, and the connection with it."""
    end.prepare()
    if not end.client:
        end.id.post_recv(end.landing, 100)
    end.connect()
    if end.client:
        end.send(3000)
        end.gone('the SEND')
        end.is_over()
    else:
        end.expect(e.IBV_WC_LOC_LEN_ERR, 'the receive')
        end.event(ce.RDMA_CM_EVENT_DISCONNECTED)
    end.line.meet()


def no_receive(end):
    """Nobody posts a receive: the connection ends."""
    end.prepare()
    end.connect()
    if end.client:
        end.send(64)
        end.gone('the SEND')
        end.is_over()
    else:
        end.event(ce.RDMA_CM_EVENT_DISCONNECTED)
    end.line.meet()


def late_receive(end):
    """A receive that comes a moment late: siw ends the connection, nonic waits for it."""
    end.prepare()
    end.connect()
    data = pattern(5000, 1)
    if end.client:
        end.memory.write(data, 5000, 0)
        end.send(5000)
        end.good('the SEND')
        if end.peer['is_siw']:
            end.is_over()
            return end.line.meet()
    elif end.is_siw():
        end.event(ce.RDMA_CM_EVENT_DISCONNECTED)
        return end.line.meet()
    else:
        time.sleep(0.3)
        end.id.post_recv(end.landing, 5000)
        end.good('the receive')
        same(end.landing.read(5000, 0), data, 'the receive')
    end.part()


def keep_writing(end):
    """Until the connection is over, which a completion says and an event."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            end.write(200000)
        except PyverbsError:
            break
        # What is posted while the connection ends siw may never complete.
        found = end.completion_within(5) if end.is_siw() else end.completion()
        if found is None:
            break
        status = found.status
        if status == e.IBV_WC_WR_FLUSH_ERR or (end.is_siw() and status == e.IBV_WC_LOC_QP_OP_ERR):
            break
        if status != e.IBV_WC_SUCCESS:
            raise SystemExit(f'completion status {status}, not {e.IBV_WC_WR_FLUSH_ERR}')
    else:
        raise SystemExit('the peer is gone and everything still succeeds')
    end.event(ce.RDMA_CM_EVENT_DISCONNECTED)


def killed(end):
    """The server's process dies without a word while WRITEs go on."""
    end.prepare()
    end.connect()
    if end.client:
        return keep_writing(end)
    time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGKILL)


def client_killed(end):
    """The client's process dies without a word; the server, which only waits, is told."""
    end.prepare()
    end.connect()
    if end.client:
        end.write(200000)
        end.good('WRITE')
        os.kill(os.getpid(), signal.SIGKILL)
    end.event(ce.RDMA_CM_EVENT_DISCONNECTED)


def destroyed(end):
    """The server destroys its queue pair in the middle of a stream of messages."""
    end.prepare()
    end.connect()
    if end.client:
        keep_writing(end)
    else:
        time.sleep(0.5)
        end.id.disconnect()
        end.event(ce.RDMA_CM_EVENT_DISCONNECTED)
    end.line.meet()


def wrong(key):
    return key ^ 0x5a00


def beyond(end):
    return end.peer['address'] + SIZE - 100


MODES = {
    'transfer': transfer(SIZES),
    # For wires on which the larger ones take their time.
    'short-transfer': transfer([size for size in SIZES if size <= 200001]),
    'private-data': private_data,
    'reject': reject,
    'write-wrong-key': refused(lambda end: end.write(64, key=wrong(end.peer['key']))),
    'read-wrong-key': refused(lambda end: end.read(64, key=wrong(end.peer['key'])), reads=True),
    'write-out-of-bounds': refused(lambda end: end.write(4096, beyond(end))),
    'read-out-of-bounds': refused(lambda end: end.read(4096, beyond(end)), reads=True),
    'write-forbidden': refused(lambda end: end.write(64, end.peer['closed_address'], end.peer['closed_key'])),
    'read-forbidden': read_forbidden,
    'send-too-long': too_long,
    'no-receive': no_receive,
    'late-receive': late_receive,
    'peer-killed': killed,
    'client-killed': client_killed,
    'disconnected': destroyed,
}


def main():
    mode, port, address, client = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4] == 'client'
    step(START_PATIENCE)
    end = Endpoint(Line(address, port, client), address, port + 1000, client)
    MODES[mode](end)
    print('as it must be')
    sys.stdout.flush()
    # The objects of a connection that is over are in nobody's way; the kernel takes care of them.
    os._exit(0)


main()
