#!/usr/bin/env python3
"""Writes a Python wheel from a folder, with the standard library only, the same bytes for the same files."""

import argparse
import base64
import hashlib
import os
import pathlib
import stat
import zipfile

TAG = "py3-none-manylinux_2_28_x86_64"


def metadata(version, readme):
    return f"""Metadata-Version: 2.1
Name: nonic
Version: {version}
Summary: RDMA with no NIC: a software RNIC in an ordinary process
Home-page: https://github.com/nonic-rdma/nonic
License: MIT OR Apache-2.0
Keywords: rdma,roce,verbs,network,simulation
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: Rust
Requires-Python: >=3.7
Description-Content-Type: text/markdown

{readme}"""


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", required=True)
    parser.add_argument("--readme", type=pathlib.Path, required=True)
    parser.add_argument("--licences", type=pathlib.Path, nargs=2, required=True)
    parser.add_argument("folder", type=pathlib.Path, help="what is installed into site-packages")
    parser.add_argument("wheel", type=pathlib.Path)
    options = parser.parse_args()

    about = f"nonic-{options.version}.dist-info"
    files = []
    for path in sorted(options.folder.rglob("*")):
        if path.is_symlink():
            raise SystemExit(f"{path}: a wheel cannot hold symbolic links")
        if path.is_file() and "__pycache__" not in path.parts:
            executable = bool(path.stat().st_mode & stat.S_IXUSR) and "bin" in path.parts
            files.append((path.relative_to(options.folder).as_posix(), path.read_bytes(), executable))
    files.append((f"{about}/METADATA", metadata(options.version, options.readme.read_text()).encode(), False))
    wheel = f"Wheel-Version: 1.0\nGenerator: nonic\nRoot-Is-Purelib: false\nTag: {TAG}\n"
    files.append((f"{about}/WHEEL", wheel.encode(), False))
    files.append((f"{about}/entry_points.txt", b"[console_scripts]\nnonic = nonic:main\n", False))
    for licence in options.licences:
        files.append((f"{about}/{licence.name}", licence.read_bytes(), False))

    record = []
    unfinished = options.wheel.with_suffix(".unfinished")
    with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, contents, executable in files:
            add(archive, name, contents, executable)
            digest = base64.urlsafe_b64encode(hashlib.sha256(contents).digest()).rstrip(b"=").decode()
            record.append(f"{name},sha256={digest},{len(contents)}\n")
        record.append(f"{about}/RECORD,,\n")
        add(archive, f"{about}/RECORD", "".join(record).encode(), False)
    os.replace(unfinished, options.wheel)


def add(archive, name, contents, executable):
    entry = zipfile.ZipInfo(name)  # its date is that of the first zip file
    entry.external_attr = (stat.S_IFREG | (0o755 if executable else 0o644)) << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(entry, contents)


if __name__ == "__main__":
    main()
