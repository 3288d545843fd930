# SPDX-License-Identifier: Apache-2.0
"""The command line: `python -m shardmesh verify PATH`, or `shardmesh verify PATH`. The process becomes the program in
the package, so signals, exit status, and output are that program's."""
from __future__ import annotations

import os
import sys
from pathlib import Path

PROGRAM = Path(__file__).absolute().parent / "bin" / "shardmesh"


def main() -> None:
    if not PROGRAM.exists():
        sys.exit(f"shardmesh: this package was built without its command line ({PROGRAM})")
    os.execv(PROGRAM, ["shardmesh", *sys.argv[1:]])


if __name__ == "__main__":
    main()
