# SPDX-License-Identifier: Apache-2.0
"""What the tests of the Python package share."""
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
    """Whether random tests are to be many (./dev test --full)."""
    return os.environ.get("SHARDMESH_PROPERTY_RUNS") == "long"


def seed():
    """Of random tests: SHARDMESH_SEED, or one of this run; a test that fails names it."""
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
        """What lies there, hidden files too."""
        return sorted(path.name for path in self.work.iterdir())


def main():
    unittest.main(argv=[sys.argv[0], *sys.argv[1:]], verbosity=1)
