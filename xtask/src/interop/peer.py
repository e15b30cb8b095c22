"""One side of a verified exchange between two verbs devices, for what no ready-made program checks.

    peer.py MODE DEVICE GID_INDEX PORT [SERVER]

MODE is `transfer` (every operation, every byte compared) or the name of an error (see ERRORS). Both sides judge:
each exits with status 0 only if it saw what it must. Parameters travel over TCP.
"""
import errno
import json
import os
import random
import socket
import sys
import time

import pyverbs.enums as e
from pyverbs.addr import AHAttr, GID, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsRDMAError
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import RecvWR, SGE, SendWR

SIZE = 1 << 20
HALF = SIZE // 2
SIZES = [1, 4, 1023, 1024, 1025, 4096, 4097, 65536, 200000]
EVERY_ACCESS = (e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE
                | e.IBV_ACCESS_REMOTE_READ | e.IBV_ACCESS_REMOTE_ATOMIC)
PATIENCE = 100


def pattern(length, seed):
    return random.Random(seed).randbytes(length)


class Line:
    """The TCP connection over which both sides agree."""

    def __init__(self, port, server):
        if server:
            self.socket = socket.create_connection((server, port), PATIENCE)
        else:
            with socket.create_server(('', port)) as listener:
                listener.settimeout(PATIENCE)
                self.socket, _ = listener.accept()
        self.socket.settimeout(PATIENCE)
        # For reading alone: a text file that is also written to forgets what it has read ahead.
        self.lines = self.socket.makefile('r')

    def exchange(self, value):
        self.socket.sendall((json.dumps(value) + '\n').encode())
        return json.loads(self.lines.readline())

    def meet(self):
        self.exchange(None)


class Endpoint:
    """A connected RC queue pair and its memory."""

    def __init__(self, device, gid_index, line, retry_count=7, rnr_retry=7, timeout=14):
        self.line, self.device = line, device
        self.context = Context(name=device)
        self.domain = PD(self.context)
        self.cq = CQ(self.context, 256)
        self.memory = MR(self.domain, SIZE, EVERY_ACCESS)
        self.closed = MR(self.domain, 4096, e.IBV_ACCESS_LOCAL_WRITE)
        capacity = QPCap(max_send_wr=64, max_recv_wr=64, max_send_sge=4, max_recv_sge=4)
        self.qp = QP(self.domain, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=self.cq, rcq=self.cq, cap=capacity,
                                             sq_sig_all=1))
        psn = random.getrandbits(24)
        self.peer = line.exchange(dict(device=device, qpn=self.qp.qp_num, psn=psn,
                                       gid=self.context.query_gid(1, gid_index).gid,
                                       key=self.memory.rkey, address=self.memory.buf,
                                       closed_key=self.closed.rkey, closed_address=self.closed.buf))
        route = GlobalRoute(dgid=GID(self.peer['gid']), sgid_index=gid_index)
        route.hop_limit = 64
        attributes = QPAttr(port_num=1)
        attributes.qp_access_flags = EVERY_ACCESS
        attributes.path_mtu = self.context.query_port(1).active_mtu
        attributes.dest_qp_num = self.peer['qpn']
        attributes.rq_psn, attributes.sq_psn = self.peer['psn'], psn
        attributes.ah_attr = AHAttr(gr=route, is_global=1, port_num=1)
        attributes.max_dest_rd_atomic = attributes.max_rd_atomic = 4
        attributes.min_rnr_timer, attributes.timeout = 12, timeout
        attributes.retry_cnt, attributes.rnr_retry = retry_count, rnr_retry
        self.qp.to_rts(attributes)
        line.meet()

    def post_receive(self, length=HALF, offset=HALF):
        self.qp.post_recv(RecvWR(sg=[SGE(self.memory.buf + offset, length, self.memory.lkey)], num_sge=1))

    def post_send(self, opcode, length, address=None, key=None, offset=0, operands=None, immediate=0):
        work = SendWR(opcode=opcode, sg=[SGE(self.memory.buf + offset, length, self.memory.lkey)], num_sge=1,
                      send_flags=e.IBV_SEND_SIGNALED, imm_data=immediate)
        address = self.peer['address'] if address is None else address
        key = self.peer['key'] if key is None else key
        if operands is not None:
            work.set_wr_atomic(key, address, *operands)
        elif opcode not in (e.IBV_WR_SEND, e.IBV_WR_SEND_WITH_IMM):
            work.set_wr_rdma(key, address)
        self.qp.post_send(work)

    def completion(self, patience=PATIENCE):
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            count, found = self.cq.poll(1)
            if count:
                return found[0]
        raise SystemExit('no completion came')

    def expect(self, status, what):
        found = self.completion()
        if found.status != status:
            raise SystemExit(f'{what}: completion status {found.status}, not {status}')
        return found

    def do(self, *arguments, **options):
        self.post_send(*arguments, **options)
        self.expect(e.IBV_WC_SUCCESS, 'work')


def same(found, wanted, what):
    if found != wanted:
        at = next(i for i, (a, b) in enumerate(zip(found, wanted)) if a != b)
        raise SystemExit(f'{what}: wrong data at byte {at} of {len(wanted)}')


def transfer(end, client):
    """SEND, WRITE, WRITE with immediate, READ and both atomics; several under way at once."""
    line = end.line
    for number, length in enumerate(SIZES):
        data = pattern(length, number)
        if not client:
            end.post_receive(length)
        line.meet()
        if client:
            end.memory.write(data, length, 0)
            end.do(e.IBV_WR_SEND, length)
        else:
            found = end.expect(e.IBV_WC_SUCCESS, 'receive')
            if found.byte_len != length:
                raise SystemExit(f'{found.byte_len} bytes came, not {length}')
            same(end.memory.read(length, HALF), data, f'SEND of {length}')
        line.meet()
    for number, length in enumerate(SIZES):
        data = pattern(length, 100 + number)
        if not client:
            end.post_receive(0)
        line.meet()
        if client:
            end.memory.write(data, length, 0)
            end.do(e.IBV_WR_RDMA_WRITE_WITH_IMM, length, end.peer['address'] + 3, immediate=number)
            end.do(e.IBV_WR_RDMA_READ, length, end.peer['address'] + 3, offset=HALF)
            same(end.memory.read(length, HALF), data, f'READ of {length}')
        else:
            end.expect(e.IBV_WC_SUCCESS, 'immediate')
            same(end.memory.read(length, 3), data, f'WRITE of {length}')
        line.meet()
    streams(end, client)
    atomics(end, client)


def streams(end, client):
    """Sixteen WRITEs and sixteen READs of 16 KiB, all posted before the first is waited for."""
    length, count = 16384, 16
    data = pattern(length * count, 4711)
    end.line.meet()
    if client:
        end.memory.write(data, len(data), 0)
        for i in range(count):
            end.post_send(e.IBV_WR_RDMA_WRITE, length, end.peer['address'] + i * length, offset=i * length)
        for i in range(count):
            end.post_send(e.IBV_WR_RDMA_READ, length, end.peer['address'] + i * length, offset=HALF + i * length)
        for _ in range(2 * count):
            end.expect(e.IBV_WC_SUCCESS, 'stream')
        same(end.memory.read(len(data), HALF), data, 'READs')
    end.line.meet()
    if not client:
        same(end.memory.read(len(data), 0), data, 'WRITEs')


def atomics(end, client):
    """An atomic that is repeated after a loss must not happen twice."""
    if not client:
        end.memory.write(bytes(8), 8, 0)
    end.line.meet()
    if client:
        for i in range(100):
            end.do(e.IBV_WR_ATOMIC_FETCH_AND_ADD, 8, operands=(3, 0))
            same(end.memory.read(8, 0), (3 * i).to_bytes(8, 'little'), f'FETCH_ADD {i}')
        end.do(e.IBV_WR_ATOMIC_CMP_AND_SWP, 8, operands=(300, 7))
    end.line.meet()
    if not client:
        same(end.memory.read(8, 0), (7).to_bytes(8, 'little'), 'CMP_SWAP')


def remote_error(status, **work):
    """A request the server's NIC must refuse; it must not touch memory, and no later work may succeed."""
    def run(end, client):
        if not client:
            before = end.memory.read(SIZE, 0)
            end.line.meet()
            same(end.memory.read(SIZE, 0), before, 'refused work')
            return
        options = {name: value(end.peer) if callable(value) else value for name, value in work.items()}
        opcode, length = options.pop('opcode'), options.pop('length', 64)
        end.post_send(opcode, length, **options)
        end.expect(status, 'refused work')
        if end.qp.query(e.IBV_QP_STATE)[0].qp_state != e.IBV_QPS_ERR:
            raise SystemExit('the queue pair is not in the error state')
        end.post_send(e.IBV_WR_RDMA_WRITE, 64)
        end.expect(e.IBV_WC_WR_FLUSH_ERR, 'later work')
        end.line.meet()
    return run


def misaligned(end, client):
    """An atomic at an address that is no multiple of eight. rxe does not even post one."""
    refused = remote_error(e.IBV_WC_REM_INV_REQ_ERR, opcode=e.IBV_WR_ATOMIC_FETCH_AND_ADD, length=8, operands=(1, 0),
                           address=lambda peer: peer['address'] + 4)
    if not client or not end.device.startswith('rxe'):
        return refused(end, client)
    try:
        refused(end, client)
    except PyverbsRDMAError as error:
        if error.error_code != errno.EINVAL:
            raise
        return end.line.meet()
    raise SystemExit('rxe posts misaligned atomics: docs/interop.md says otherwise')


def too_long(end, client):
    """A SEND longer than the receive that takes it: an error on both sides."""
    if not client:
        end.post_receive(100)
    end.line.meet()
    if client:
        end.post_send(e.IBV_WR_SEND, 3000)
        # rxe takes the receive for malformed and says so; see docs/interop.md.
        by_rxe = end.peer['device'].startswith('rxe')
        end.expect(e.IBV_WC_REM_OP_ERR if by_rxe else INVALID, 'the send')
    else:
        by_rxe = end.device.startswith('rxe')
        end.expect(e.IBV_WC_LOC_QP_OP_ERR if by_rxe else e.IBV_WC_LOC_LEN_ERR, 'the receive')
    end.line.meet()


def no_receive(end, client):
    """Nobody posts a receive: the sender gives up after as many tries as it was told."""
    if client:
        end.post_send(e.IBV_WR_SEND, 64)
        end.expect(e.IBV_WC_RNR_RETRY_EXC_ERR, 'the send')
    end.line.meet()


def late_receive(end, client):
    """A receive that comes late is waited for."""
    data = pattern(5000, 1)
    end.line.meet()
    if client:
        end.memory.write(data, 5000, 0)
        end.do(e.IBV_WR_SEND, 5000)
    else:
        time.sleep(0.3)
        end.post_receive()
        end.expect(e.IBV_WC_SUCCESS, 'the receive')
        same(end.memory.read(5000, HALF), data, 'the receive')
    end.line.meet()


def killed(end, client):
    """The server's process dies without a word while WRITEs go on."""
    end.line.meet()
    if not client:
        os.kill(os.getpid(), 9)
    keep_writing(end)


def destroyed(end, client):
    """The server destroys its queue pair in the middle of a stream of messages."""
    end.line.meet()
    if client:
        keep_writing(end)
        end.line.meet()
    else:
        end.qp.close()
        end.line.meet()


def keep_writing(end):
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        end.post_send(e.IBV_WR_RDMA_WRITE, 200000)
        status = end.completion().status
        if status == e.IBV_WC_RETRY_EXC_ERR:
            return
        if status != e.IBV_WC_SUCCESS:
            raise SystemExit(f'completion status {status}, not {e.IBV_WC_RETRY_EXC_ERR}')
    raise SystemExit('the peer is gone and everything still succeeds')


WRITE, READ, ADD = e.IBV_WR_RDMA_WRITE, e.IBV_WR_RDMA_READ, e.IBV_WR_ATOMIC_FETCH_AND_ADD
ACCESS, INVALID = e.IBV_WC_REM_ACCESS_ERR, e.IBV_WC_REM_INV_REQ_ERR
beyond = dict(length=4096, address=lambda peer: peer['address'] + SIZE - 100)
forbidden = dict(address=lambda peer: peer['closed_address'], key=lambda peer: peer['closed_key'])
ERRORS = {
    'write-wrong-key': remote_error(ACCESS, opcode=WRITE, key=lambda peer: peer['key'] ^ 0x5a00),
    'read-wrong-key': remote_error(ACCESS, opcode=READ, key=lambda peer: peer['key'] ^ 0x5a00),
    'atomic-wrong-key': remote_error(ACCESS, opcode=ADD, length=8, operands=(1, 0),
                                     key=lambda peer: peer['key'] ^ 0x5a00),
    'write-out-of-bounds': remote_error(ACCESS, opcode=WRITE, **beyond),
    'read-out-of-bounds': remote_error(ACCESS, opcode=READ, **beyond),
    'write-forbidden': remote_error(ACCESS, opcode=WRITE, **forbidden),
    'read-forbidden': remote_error(ACCESS, opcode=READ, **forbidden),
    'atomic-misaligned': misaligned,
    'send-too-long': too_long,
    'no-receive': no_receive,
    'late-receive': late_receive,
    'peer-killed': killed,
    'qp-destroyed': destroyed,
}


def main():
    mode, device, gid_index, port = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    server = sys.argv[5] if len(sys.argv) > 5 else None
    options = {'no-receive': dict(rnr_retry=3), 'peer-killed': dict(retry_count=2),
               'qp-destroyed': dict(retry_count=2)}.get(mode, {})
    end = Endpoint(device, gid_index, Line(port, server), **options)
    action = transfer if mode == 'transfer' else ERRORS[mode]
    action(end, server is not None)
    print('as it must be')


main()
