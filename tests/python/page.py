# SPDX-License-Identifier: Apache-2.0
"""The code of docs/python.md runs: all blocks in order, in one process and one folder. Blocks that begin with `# on
every rank` run on two ranks. `--page FILE` names the page."""
import os
import re
import sys
import tempfile
import traceback
from pathlib import Path

import common

common.need_torch()
PAGE = Path(sys.argv[2]) if sys.argv[1:2] == ["--page"] else common.DATA.parent.parent / "docs" / "python.md"
MARK = "# on every rank\n"


def run(blocks, what):
    names = {"__name__": "page"}
    for line, block in blocks:
        try:
            exec(compile("\n" * line + block, str(PAGE), "exec"), names)
        except Exception:
            traceback.print_exc()
            raise AssertionError(f"{PAGE.name}:{line}: {what}") from None


def on_rank(rank, world, folder, blocks):
    os.chdir(folder)
    run([(0, "import torch, shardmesh"), *blocks], f"rank {rank} of {world}")


def main():
    text = PAGE.read_text()
    blocks = [(text.count("\n", 0, found.start()) + 1, found.group(1))
              for found in re.finditer(r"^```python\n(.*?)^```$", text, re.M | re.S)]
    of_ranks = [block for block in blocks if block[1].startswith(MARK)]
    assert len(blocks) > 3 and of_ranks, "the page has no code"
    with tempfile.TemporaryDirectory() as folder:
        from rank_group import run_ranks  # before our code makes threads: ranks are forked

        run_ranks(2, on_rank, folder, of_ranks)
        os.chdir(folder)
        run([block for block in blocks if block not in of_ranks], "one process")
        os.chdir("/")
    print(f"{len(blocks)} blocks of {PAGE.name} run")


if __name__ == "__main__":
    main()
