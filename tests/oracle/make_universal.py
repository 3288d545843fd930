# SPDX-License-Identifier: Apache-2.0
"""Makes tests/data/writers/deepspeed_universal: small universal checkpoints that DeepSpeed's own ds_to_universal.py
made from its checkpoints on the CPU (gloo), and their contents.

    make_universal.py FOLDER [CASE ..]   needs deepspeed (see make_deepspeed.py)

FOLDER/samples.tar.xz has CASE/ckpt (`global_step2_universal` and `latest_universal`) and CASE/expected.json:
{"state":{NAME:[DTYPE,SHAPE,HEX]},"optimizer":{"exp_avg.NAME":[..]}}. With one tensor-parallel rank, the values are
the output of zero_to_fp32.py for the original checkpoint (`make_deepspeed.expect`). With several, they are each
rank's weights and states as DeepSpeed returns them at run time, merged by hand. deepspeed_universal.py uses them.
"""
import argparse
import contextlib
import json
import os
import shutil
import socket
import sys
import tempfile
from pathlib import Path

import torch
import torch.multiprocessing

import make_deepspeed
from make_deepspeed import described, pack

# Cases of make_deepspeed.
REPLICAS = ["zero1_w2_bf16", "zero2_w2_bf16", "zero2_w4_fp32", "zero3_w2_bf16", "zero3_w3_fp32"]
# name: data-parallel ranks, tensor-parallel ranks, stage
SPLIT = {"tp2_zero1_w1": (1, 2, 1), "tp2_zero2_w2": (2, 2, 2), "tp3_zero1_w2": (2, 3, 1)}
HIDDEN, VOCABULARY = 6, 10

PATTERNS = {
    "tp_replicated_parameter_patterns": [r"norm\.(weight|bias)"],
    "parameter_with_row_parallelism_patterns": [r"row\.weight"],
    "vocabulary_parameter_patterns": [r"words\.weight"],
    "parameter_with_2_sub_params_cat_dim_0": [r"gated\.weight"],
    "original_vocab_size": VOCABULARY,
    "universal_checkpoint_version": 0.2,
}


class Split(torch.nn.Module):
    """One rank's part of a model, as in Megatron-DeepSpeed."""

    def __init__(self, rank, ranks):
        super().__init__()
        padded = -(-VOCABULARY // ranks)
        self.words = torch.nn.Embedding(padded, HIDDEN)
        self.column = torch.nn.Linear(HIDDEN, 4)
        self.row = torch.nn.Linear(4, HIDDEN, bias=False)
        self.gated = torch.nn.Linear(HIDDEN, 2 * 3, bias=False)
        self.norm = torch.nn.LayerNorm(HIDDEN)
        self.register_buffer("ids", torch.arange(4))
        self.universal_checkpoint_info = PATTERNS
        torch.manual_seed(100 + rank)
        for name, parameter in self.named_parameters():
            if not name.startswith("norm"):
                parameter.data.normal_()

    def forward(self, x):
        # The norms' gradients must be the same on all tensor-parallel ranks.
        parts = (self.column.weight.square().sum() + self.column.bias.square().sum() + self.row.weight.pow(3).sum() +
                 self.gated.weight.pow(3).sum() + self.words.weight.square().sum())
        return parts + self.norm(x).square().sum() + (self.norm.bias * torch.arange(HIDDEN)).sum()


class Grid:
    """Tensor-parallel ranks side by side: the interface that DeepSpeed requires of an `mpu`."""

    def __init__(self, data, model):
        rank = torch.distributed.get_rank()
        self.data, self.model = data, model
        self.data_rank, self.model_rank = rank // model, rank % model
        for d in range(data):
            group = torch.distributed.new_group([d * model + m for m in range(model)])
            if d == self.data_rank:
                self.model_group = group
        for m in range(model):
            group = torch.distributed.new_group([d * model + m for d in range(data)])
            if m == self.model_rank:
                self.data_group = group

    def get_model_parallel_rank(self):
        return self.model_rank

    def get_model_parallel_world_size(self):
        return self.model

    def get_model_parallel_group(self):
        return self.model_group

    get_tensor_model_parallel_rank = get_model_parallel_rank
    get_tensor_model_parallel_world_size = get_model_parallel_world_size
    get_tensor_model_parallel_group = get_model_parallel_group

    def get_data_parallel_rank(self):
        return self.data_rank

    def get_data_parallel_world_size(self):
        return self.data

    def get_data_parallel_group(self):
        return self.data_group


def train_split(rank, case, port, folder):
    data, model, stage = SPLIT[case]
    world = data * model
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank), LOCAL_SIZE=str(world),
                      MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), DS_ACCELERATOR="cpu", OMP_NUM_THREADS="1")
    import deepspeed
    from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state
    deepspeed.init_distributed(dist_backend="gloo")
    grid = Grid(data, model)
    config = {"train_batch_size": data, "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False,
              "zero_optimization": {"stage": stage}}
    module = Split(grid.model_rank, model)
    optimizer = torch.optim.Adam(module.parameters(), lr=1e-2)
    engine, *_ = deepspeed.initialize(model=module, optimizer=optimizer, config=config, mpu=grid)
    torch.manual_seed(7)
    for _ in range(2):
        engine.backward(engine(torch.randn(1, HIDDEN)))
        engine.step()
    held = {}
    for name, parameter in engine.module.named_parameters():
        held[name] = {"fp32": safe_get_full_fp32_param(parameter).clone()}
        for state in ("exp_avg", "exp_avg_sq"):
            held[name][state] = safe_get_full_optimizer_state(parameter, state).clone().view(parameter.shape)
    if grid.data_rank == 0:
        torch.save(held, folder / f"held_{grid.model_rank}.pt")
    engine.save_checkpoint(str(folder / "ckpt"), client_state={"note": "hello", "rng": torch.arange(3)})
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def together(name, parts):
    """The whole parameter, merged by hand."""
    if name.startswith("norm"):
        assert all(part.equal(parts[0]) for part in parts)
        return parts[0]
    if name == "gated.weight":
        return torch.cat([part[:3] for part in parts] + [part[3:] for part in parts])
    whole = torch.cat(parts, dim=1 if name == "row.weight" else 0)
    return whole[:VOCABULARY] if name == "words.weight" else whole


def expect_split(folder, ranks):
    held = [torch.load(folder / f"held_{rank}.pt") for rank in range(ranks)]
    expected = {"state": {"ids": described(torch.arange(4))}, "optimizer": {}}
    for name in held[0]:
        for state in ("fp32", "exp_avg", "exp_avg_sq"):
            value = described(together(name, [one[name][state] for one in held]))
            if state == "fp32":
                expected["state"][name] = value
            else:
                expected["optimizer"][f"{state}.{name}"] = value
    return expected


def make(folder, case):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    folder.mkdir(parents=True)
    if case in SPLIT:
        data, model, _ = SPLIT[case]
        torch.multiprocessing.spawn(train_split, args=(case, port, folder), nprocs=data * model)
        expected = expect_split(folder, model)
    else:
        torch.multiprocessing.spawn(make_deepspeed.train, args=(case, port, folder), nprocs=make_deepspeed.CASES[case][0])
        expected = make_deepspeed.expect(folder / "ckpt")
        if make_deepspeed.CASES[case][1] == 1:  # a value without a float32 copy was made from the training precision
            model = torch.load(folder / "ckpt/global_step2/mp_rank_00_model_states.pt", weights_only=False)["module"]
            expected["state"].update({name: described(model[name].float()) for name in ("frozen.weight", "frozen.bias")})
    (folder / "expected.json").write_text(json.dumps(expected))
    from deepspeed.checkpoint import ds_to_universal
    step = folder / "ckpt" / "global_step2"
    ds_to_universal.main(argparse.Namespace(
        input_folder=str(step), output_folder=str(step) + "_universal", num_extract_workers=1, num_merge_workers=1,
        keep_temp_folder=False, strict=True, inject_missing_state=case not in SPLIT))
    if case in SPLIT:  # the original checkpoint is read as well
        for script in (folder / "ckpt").glob("*.py"):
            script.unlink()
    else:
        for other in [p for p in (folder / "ckpt").iterdir() if "universal" not in p.name]:
            shutil.rmtree(other) if other.is_dir() else other.unlink()
    for held in folder.glob("held_*.pt"):
        held.unlink()


def main(target, cases):
    with tempfile.TemporaryDirectory() as scratch:
        for case in cases or [*REPLICAS, *SPLIT]:
            make(Path(scratch) / case, case)
        pack(Path(scratch), target / "samples.tar.xz")


if __name__ == "__main__":
    with contextlib.redirect_stdout(sys.stderr):
        main(Path(sys.argv[1]), sys.argv[2:])
