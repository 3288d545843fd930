# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests of the Python package."""
import os
import shutil
import sys
import tempfile
import unittest
import warnings
from pathlib import Path

SKIPPED = 77
DATA = Path(os.environ["SHARDMESH_TEST_DATA"])
GOLDEN = DATA / "golden"


def need_torch():
    try:
        import torch  # noqa: F401
    except ImportError as missing:
        print(f"skipped: {missing}")
        sys.exit(SKIPPED)
    warnings.filterwarnings("ignore")


def long_runs():
    """Whether random tests run long (./dev test --full)."""
    return os.environ.get("SHARDMESH_PROPERTY_RUNS") == "long"


def seed():
    """The seed of random tests: SHARDMESH_SEED, or a random one for this run; a failing test names it."""
    global _seed
    if _seed is None:
        _seed = int(os.environ.get("SHARDMESH_SEED") or int.from_bytes(os.urandom(4), "little"))
    return _seed


_seed = None


def raw(tensor):
    """The row-major bytes of a tensor of any dtype."""
    import torch

    tensor = tensor.detach().resolve_conj().resolve_neg().contiguous()
    if tensor.numel() == 0:
        return b""
    return bytes(torch.empty(0, dtype=torch.uint8).set_(
        tensor.untyped_storage(), tensor.storage_offset() * tensor.element_size(),
        (tensor.numel() * tensor.element_size(),), (1,)).numpy())


class WorkTest(unittest.TestCase):
    """A test with a scratch folder."""

    def setUp(self):
        self.work = Path(tempfile.mkdtemp(prefix="shardmesh-python-"))
        self.addCleanup(shutil.rmtree, self.work, ignore_errors=True)

    def left_in_work(self):
        """All names in the scratch folder, including hidden files."""
        return sorted(path.name for path in self.work.iterdir())


def main():
    unittest.main(argv=[sys.argv[0], *sys.argv[1:]], verbosity=1)
