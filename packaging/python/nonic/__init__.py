"""RDMA with no NIC: the `nonic` command and the libraries programs run on.

There is no Python interface here. `pip install nonic` gives the command; `python -m nonic` is the same.
"""

import os
import sys


def command():
    """Where the command is. Its libraries are found from there."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "nonic")


def libraries():
    """The folder of libibverbs.so.1 and librdmacm.so.1, for LD_LIBRARY_PATH."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib", "nonic")


def main():
    """Becomes the command, with this program's arguments."""
    os.execv(command(), ["nonic", *sys.argv[1:]])
