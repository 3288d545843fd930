# SPDX-License-Identifier: Apache-2.0
"""shardmesh in PyTorch's place: saves whose planners cache their plans, by shardmesh and PyTorch in turn."""
import os
import shutil
import warnings
from pathlib import Path

import common

common.need_torch()
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.distributed.checkpoint as torch_checkpoint  # noqa: E402
from torch.distributed.checkpoint import DefaultSavePlanner, FileSystemReader, FileSystemWriter  # noqa: E402
from torch.distributed.checkpoint.api import CheckpointException  # noqa: E402
from torch.distributed.checkpoint.planner import SavePlanner  # noqa: E402

import shardmesh  # noqa: E402
import shardmesh.dcp  # noqa: E402
from rank_group import run_ranks  # noqa: E402

warnings.filterwarnings("ignore")


def clear_plan_caches():
    for cache in (SavePlanner._cached_save_plan, SavePlanner._cached_final_save_plan, SavePlanner._cached_all_plans,
                  SavePlanner._cached_global_plan, SavePlanner._cached_metadata):
        cache.clear()


def cached_saves(rank, world, work, group=None):
    """Saves with cached plans, by our writer and PyTorch's in turn, and checks what each returns."""
    clear_plan_caches()
    wrong = []
    writers = ["ours", "ours", "theirs", "ours", "failing", "ours", "reused", "reused", "theirs"]
    kept = shardmesh.dcp.StorageWriter(f"{work}/kept")
    for step, kind in enumerate(writers):
        path = f"{work}/step-{step}"
        size = 6 if step < 7 else 9  # the plans change once
        state = {"mine": torch.full((size,), float(step)), f"of{rank}": torch.full((3,), float(100 * rank + step)),
                 "epoch": step}
        planner = DefaultSavePlanner(enable_plan_caching=True)
        if kind == "failing":
            os.makedirs(path, exist_ok=True)
            Path(path, "file").write_bytes(b"x")
            try:
                torch_checkpoint.save(state, storage_writer=shardmesh.dcp.StorageWriter(path), planner=planner)
                wrong.append("saved over a folder")
            except CheckpointException:
                pass
            continue
        if kind == "reused":
            kept.reset(path)
        writer = {"ours": lambda: shardmesh.dcp.StorageWriter(path), "theirs": lambda: FileSystemWriter(path),
                  "reused": lambda: kept}[kind]()
        torch_checkpoint.save(state, storage_writer=writer, planner=planner)
        loaded = {key: torch.zeros_like(value) if isinstance(value, torch.Tensor) else -1 for key, value in state.items()}
        torch_checkpoint.load(loaded, storage_reader=FileSystemReader(path))
        for key, value in state.items():
            same = torch.equal(loaded[key], value) if isinstance(value, torch.Tensor) else loaded[key] == value
            if not same:
                wrong.append((step, kind, key, loaded[key]))
        if kind != "theirs" and not shardmesh.verify(path).ok:
            wrong.append((step, str(shardmesh.verify(path).problems)))
    return wrong


def first_cached_save_fails(rank, world, work):
    clear_plan_caches()
    there = f"{work}/there"
    os.makedirs(there, exist_ok=True)
    Path(there, "file").write_bytes(b"x")
    planner = DefaultSavePlanner(enable_plan_caching=True)
    try:
        torch_checkpoint.save({"w": torch.ones(6)}, storage_writer=shardmesh.dcp.StorageWriter(there), planner=planner)
    except CheckpointException:
        pass
    if world > 1:
        dist.barrier()
    for number, kind in enumerate((FileSystemWriter, shardmesh.dcp.StorageWriter)):
        torch_checkpoint.save({"w": torch.full((6,), float(number))}, storage_writer=kind(f"{work}/after{number}"),
                              planner=DefaultSavePlanner(enable_plan_caching=True))
    return [shardmesh.load(f"{work}/after{number}", "w")[0].item() for number in range(2)]


class PlanCachingTest(common.WorkTest):
    def test_plans_are_cached_in_one_process(self):
        self.assertEqual(cached_saves(0, 1, self.work), [])
        clear_plan_caches()

    def test_plans_are_cached_on_ranks(self):
        self.assertEqual(run_ranks(2, cached_saves, str(self.work)), [[], []])

    def test_a_first_save_that_fails_spoils_no_cache(self):
        self.assertEqual(first_cached_save_fails(0, 1, str(self.work)), [0.0, 1.0])
        clear_plan_caches()
        shutil.rmtree(self.work)
        self.work.mkdir()
        self.assertEqual(run_ranks(2, first_cached_save_fails, str(self.work)), [[0.0, 1.0]] * 2)


if __name__ == "__main__":
    common.main()
