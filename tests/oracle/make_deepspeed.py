# SPDX-License-Identifier: Apache-2.0
"""Makes tests/data/writers/deepspeed: small checkpoints that DeepSpeed saved on the CPU (gloo), and the output of its
own zero_to_fp32.py: the state dict, and each of the optimizer's states in place of the weights.

    make_deepspeed.py FOLDER [CASE ..]

Needs deepspeed (with hjson, py-cpuinfo, pydantic, msgpack, einops, psutil, tqdm). FOLDER/samples.tar.xz has
CASE/ckpt (as saved, without the copied scripts) and CASE/expected.json:
{"state":{NAME:[DTYPE,SHAPE,HEX]},"optimizer":{"exp_avg.NAME":[..]}}. deepspeed_folders.py uses it. The cases of ZeRO
2 were made with Python 3.11.2, which pickles ZeRO's stage by name; the others with a Python that pickles it by
value.
"""
import contextlib
import io
import json
import os
import shutil
import socket
import sys
import tarfile
import tempfile
from pathlib import Path

import torch
import torch.multiprocessing

# name: ranks, stage, precision, parameter groups, elements of a ZeRO 3 sub-group
CASES = {
    "zero0_w2_fp32": (2, 0, "fp32", 2, 0),
    "zero0_w1_bf16": (1, 0, "bf16", 1, 0),
    "zero1_w3_fp32": (3, 1, "fp32", 2, 0),
    "zero1_w2_bf16": (2, 1, "bf16", 1, 0),
    "zero2_w1_fp16": (1, 2, "fp16", 1, 0),
    "zero2_w2_bf16": (2, 2, "bf16", 2, 0),
    "zero2_w4_fp32": (4, 2, "fp32", 1, 0),
    "zero3_w1_fp32": (1, 3, "fp32", 1, 0),
    "zero3_w2_bf16": (2, 3, "bf16", 1, 0),
    "zero3_w3_fp32": (3, 3, "fp32", 2, 40),
    "zero3_w4_fp16": (4, 3, "fp16", 1, 0),
}
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(5, 7)
        self.frozen = torch.nn.Linear(7, 3)
        for parameter in self.frozen.parameters():
            parameter.requires_grad_(False)
        self.last = torch.nn.Linear(3, 11, bias=False)
        self.tied = torch.nn.Linear(3, 11, bias=False)
        self.tied.weight = self.last.weight
        self.scale = torch.nn.Parameter(torch.tensor([1.25]))
        self.cube = torch.nn.Parameter(torch.arange(42.0).reshape(2, 3, 7) / 42)
        self.register_buffer("ids", torch.arange(4))
        self.register_buffer("thirds", torch.arange(6.0).reshape(2, 3) / 3)
        self.register_buffer("mask", torch.tensor([True, False]))
        self.register_buffer("scratch", torch.zeros(2), persistent=False)

    def forward(self, x):
        x = self.frozen(self.first(x))
        return (self.last(x) + self.tied(x)).sum() * self.scale.sum() + (self.cube * self.cube).sum()


def described(tensor):
    tensor = tensor.detach().cpu().contiguous()
    data = tensor.reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""
    return [str(tensor.dtype).removeprefix("torch."), list(tensor.shape), data.hex()]


def train(rank, case, port, folder):
    world, stage, precision, groups, sub_group = CASES[case]
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank), LOCAL_SIZE=str(world),
                      MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), DS_ACCELERATOR="cpu", OMP_NUM_THREADS="1")
    import deepspeed
    deepspeed.init_distributed(dist_backend="gloo")
    config = {"train_batch_size": 4 * world, "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False,
              "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0}}
    if sub_group:
        config["zero_optimization"]["sub_group_size"] = sub_group
    if precision != "fp32":
        config[precision] = {"enabled": True, **({"initial_scale_power": 2} if precision == "fp16" else {})}
    torch.manual_seed(3)
    if stage == 3:
        with deepspeed.zero.Init(config_dict_or_path=config):
            model = Model()
    else:
        model = Model()
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam([{"params": trained[:2], "lr": 1e-2}, {"params": trained[2:], "lr": 1e-3}]
                                 if groups > 1 else trained, lr=1e-2)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config, lr_scheduler=schedule)
    torch.manual_seed(rank)
    for _ in range(2):
        engine.backward(engine(torch.randn(4, 5).to(DTYPES[precision])))
        engine.step()
    engine.save_checkpoint(str(folder / "ckpt"), client_state={"epoch": 3, "note": "hello", "rng": torch.arange(3)})
    if rank == 0 and stage == 0:
        state = {name: described(value) for name, value in engine.module.state_dict().items()}
        (folder / "expected.json").write_text(json.dumps({"state": state, "optimizer": {}}))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def expect(checkpoint):
    """The output of zero_to_fp32.py, also with the optimizer's states in place of the weights."""
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint as merge
    expected = {"state": {name: described(value) for name, value in merge(str(checkpoint)).items()}, "optimizer": {}}
    with tempfile.TemporaryDirectory() as scratch:
        for state in ("exp_avg", "exp_avg_sq"):
            copy = Path(scratch) / state
            shutil.copytree(checkpoint, copy)
            for file in copy.glob("*/*_optim_states.pt"):
                saved = torch.load(file, weights_only=False)
                rank = saved["optimizer_state_dict"]
                is_3 = "fp32_flat_groups" in rank
                weights = rank["fp32_flat_groups" if is_3 else "single_partition_of_fp32_groups"]
                groups = rank["optimizer_state_dict" if is_3 else "base_optimizer_state"]["state"]
                for i in range(len(weights)):
                    weights[i] = groups[i][state][:weights[i].numel()]
                torch.save(saved, file)
            (model, *_) = sorted(copy.glob("*/*_model_states.pt"))
            trained = {name for group in torch.load(model, weights_only=False)["param_shapes"] for name in group}
            for name, value in merge(str(copy)).items():
                if name in trained:
                    expected["optimizer"][f"{state}.{name}"] = described(value)
    return expected


def make(folder, case):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    torch.multiprocessing.spawn(train, args=(case, port, folder), nprocs=CASES[case][0])
    if CASES[case][1]:
        (folder / "expected.json").write_text(json.dumps(expect(folder / "ckpt")))
    for script in (folder / "ckpt").glob("*.py"):
        script.unlink()


def pack(folder, target):
    """Archives the files below `folder`, without owners and times."""
    with tarfile.open(target, "w:xz", preset=9) as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                entry = tarfile.TarInfo(str(path.relative_to(folder)))
                data = path.read_bytes()
                entry.size = len(data)
                archive.addfile(entry, io.BytesIO(data))


def main(target, cases):
    with tempfile.TemporaryDirectory() as scratch:
        for case in cases or CASES:
            make(Path(scratch) / case, case)
        pack(Path(scratch), target / "samples.tar.xz")


if __name__ == "__main__":
    with contextlib.redirect_stdout(sys.stderr):
        main(Path(sys.argv[1]), sys.argv[2:])
