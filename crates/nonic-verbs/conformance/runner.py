#!/usr/bin/python3
"""Runs rdma-core's tests as they are, and records what became of each.

usage: runner.py TESTS REPORT PATTERN [options of run_tests.py]

TESTS is the unpacked folder of tests. REPORT is a file of JSON lines, one when a test starts and one when it ends. A
test that is in it already is not run again: whoever started us sees from a start without an end which test took the
whole process down, and starts us again for the rest. PATTERN is a part of the names of the tests to run.
"""

import faulthandler
import json
import multiprocessing
import os
import sys
import time
import traceback
import unittest
from importlib.machinery import SourceFileLoader

# Longer than any test of rdma-core may wait for anything.
PATIENCE_SECONDS = 60

# Tests of one vendor's hardware and of GPUs.
ELSEWHERE = ('test_mlx5', 'test_efa', 'test_cuda')


class Recorder(unittest.TestResult):
    """Writes each outcome down at once."""

    def __init__(self, report):
        super().__init__()
        self.report = report
        self.outcome = None
        self.started = 0.0

    def startTest(self, test):
        super().startTest(test)
        self.outcome = ('passed', '')
        self.started = time.monotonic()
        self.write(test, 'started', '')
        faulthandler.dump_traceback_later(PATIENCE_SECONDS, exit=True)

    def stopTest(self, test):
        faulthandler.cancel_dump_traceback_later()
        self.write(test, *self.outcome)
        super().stopTest(test)

    def addSkip(self, test, reason):
        if self.outcome[0] != 'failed':
            self.outcome = ('skipped', reason)

    def addFailure(self, test, err):
        self.outcome = ('failed', ''.join(traceback.format_exception(*err)))

    def addError(self, test, err):
        self.outcome = ('failed', ''.join(traceback.format_exception(*err)))

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self.addError(test, err)

    def addUnexpectedSuccess(self, test):
        self.outcome = ('failed', 'an unexpected success')

    def write(self, test, outcome, reason):
        line = {'test': test.id(), 'outcome': outcome, 'reason': reason,
                'seconds': round(time.monotonic() - self.started, 3)}
        self.report.write(json.dumps(line) + '\n')
        self.report.flush()


class ReadFirst:
    """A barrier that a side of an iWARP connection comes to after its WRITEs are placed.

    A WRITE over iWARP has completed when TCP has taken it (RFC 5040, section 5.5); the peer may place it later. A READ is answered
    after everything sent before it is placed. The tests were written for InfiniBand, where the completion says as much.
    """

    def __init__(self, barrier, cm_res):
        self.barrier = barrier
        self.cm_res = cm_res

    def wait(self):
        from pyverbs.enums import IBV_SEND_SIGNALED
        self.cm_res.cmid.post_read(self.cm_res.mr, 0, 0, 0, flags=IBV_SEND_SIGNALED)
        self.cm_res.cmid.get_send_comp()
        self.barrier.wait()


def read_before_telling():
    """The side that WRITEs tells the other by a barrier, not by RDMA: on iWARP it makes sure first that there is something to tell."""
    from tests.rdmacm_utils import CMConnection
    remote_traffic = CMConnection.remote_traffic

    def with_reads(self, passive, remote_op='write'):
        barrier = self.syncer
        if not passive and remote_op == 'write':
            self.syncer = ReadFirst(barrier, self.cm_res)
        remote_traffic(self, passive=passive, remote_op=remote_op)
        self.syncer = barrier

    CMConnection.remote_traffic = with_reads


def cases(suite):
    """Every test of a suite of suites."""
    for member in suite:
        if isinstance(member, unittest.TestSuite):
            yield from cases(member)
        else:
            yield member


def main():
    folder, path, pattern = sys.argv[1:4]
    sys.argv[1:] = sys.argv[4:]
    faulthandler.enable()
    # What the tests were written for: they give processes what cannot be sent to one. Since Python 3.14 it is not the default.
    multiprocessing.set_start_method('fork')
    sys.path.insert(0, folder)
    from args_parser import parser
    parser.parse_args()
    tests = SourceFileLoader('tests', os.path.join(folder, '__init__.py')).load_module()
    if (parser.get_config()['dev'] or '').startswith('iwarp'):
        read_before_telling()
    with open(path, 'a+', encoding='utf-8') as report:
        report.seek(0)
        done = {json.loads(line)['test'] for line in report}
        recorder = Recorder(report)
        for case in cases(unittest.defaultTestLoader.loadTestsFromModule(tests)):
            name = case.id()
            if name in done or pattern not in name or name.split('.')[1].startswith(ELSEWHERE):
                continue
            case.run(recorder)


if __name__ == '__main__':
    main()
