# SPDX-License-Identifier: Apache-2.0
"""Ranks resume from the newest good step of a run, save a step after each update, and keep the last two.

Usage: torchrun --nproc-per-node 2 save_keep_resume.py FOLDER STEPS
"""
import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

import shardmesh


def main(folder, last):
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    state = {"model": {"weight": distribute_tensor(torch.zeros(8, 4), mesh, [Shard(0)])}, "step": 0}
    with shardmesh.Run(folder, keep=shardmesh.KeepRules(last=2)) as run:
        resumed = run.resume(state)  # in place
        if dist.get_rank() == 0:
            for problem in resumed.skipped:
                print("note:", problem)
            print(f"resumes after step {state['step']}")

        for step in range(state["step"] + 1, last + 1):
            state["model"]["weight"].to_local().add_(1)
            state["step"] = step
            run.save(step, state)  # rank 0 then deletes old steps in the background
    assert torch.all(state["model"]["weight"].full_tensor() == last)
    if dist.get_rank() == 0:  # `run` is closed, so the deletion has ended
        print(f"keeps steps {[kept.step for kept in shardmesh.Run(folder, read_only=True).steps()]}")
    dist.destroy_process_group()


main(sys.argv[1], int(sys.argv[2]))
