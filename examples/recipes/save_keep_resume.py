# SPDX-License-Identifier: Apache-2.0
"""Ranks resume from the newest checkpoint of a folder, save one at every step, and keep the last two.

Usage: torchrun --nproc-per-node 2 save_keep_resume.py FOLDER STEPS
"""
import shutil
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

import shardmesh.dcp

KEPT = 2


def saved_steps(run):
    """The saved steps, ascending. A checkpoint appears when it is complete, so each of them can be loaded."""
    return sorted(int(folder.name.removeprefix("step-")) for folder in run.glob("step-*"))


def main(run, last):
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    state = {"model": {"weight": distribute_tensor(torch.zeros(8, 4), mesh, [Shard(0)])}, "step": 0}
    steps = saved_steps(run)
    if steps:
        shardmesh.dcp.load(state, checkpoint_id=run / f"step-{steps[-1]}")  # in place
    if dist.get_rank() == 0:
        print(f"resumes after step {state['step']}")

    for step in range(state["step"] + 1, last + 1):
        state["model"]["weight"].to_local().add_(1)
        state["step"] = step
        shardmesh.dcp.save(state, checkpoint_id=run / f"step-{step}")
        if dist.get_rank() == 0:  # one rank removes; the new checkpoint is on the disk
            for old in saved_steps(run)[:-KEPT]:
                shutil.rmtree(run / f"step-{old}")
    assert torch.all(state["model"]["weight"].full_tensor() == last)
    if dist.get_rank() == 0:
        print(f"keeps steps {saved_steps(run)}")
    dist.destroy_process_group()


main(Path(sys.argv[1]), int(sys.argv[2]))
