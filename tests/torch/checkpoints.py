# SPDX-License-Identifier: Apache-2.0
"""Exchanges checkpoints between PyTorch ranks and C++ ranks, bit for bit. Four PyTorch ranks save a model with FSDP2
over tensor parallelism and a ShardedTensor; C++ ranks load it, each its part. PyTorch ranks load what C++ ranks saved.

    checkpoints.py PROGRAM [MPIRUN]     PROGRAM: rank_checkpoint, whose module is the one below"""
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "python"))
import torch  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402
from torch.distributed._shard.metadata import ShardMetadata  # noqa: E402
from torch.distributed._shard.sharded_tensor import Shard, init_from_local_shards  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module  # noqa: E402

from rank_group import run_ranks  # noqa: E402

HEAD_ROWS = (3, 0, 4, 2)  # per rank
# The placements of C++ ranks, by number of ranks.
DEALINGS = {
    1: ("1", []),
    2: ("tp=2", ["model\\..*\\.weight=S(0)", "model\\.steps=S(0)"]),
    3: ("3", ["model\\.mlp\\..*weight=S(1)", "model\\.head\\.weight=S(0)"]),
    4: ("dp=2,tp=2", ["model\\.mlp\\.up\\..*=SS(0,2),S(0)", "model\\.mlp\\.down\\.weight=S(0),S(1)",
                      "model\\.head\\.weight=R,S(1)"]),
    6: ("dp=2,tp=3", ["model\\.mlp\\..*\\.weight=S(1),S(0)", "model\\.head\\.weight=SS(0,3),S(0)"]),
}


def filled(name, shape, dtype):
    """The formula of rank_checkpoint.cpp."""
    size = torch.empty(shape, dtype=dtype).nbytes
    data = bytearray((i * 151 + len(name) * 29 + 7) % 256 for i in range(size))
    return torch.frombuffer(data, dtype=dtype).reshape(shape).clone()


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.mlp = torch.nn.Module()
        self.mlp.up = torch.nn.Linear(10, 16)
        self.mlp.down = torch.nn.Linear(16, 6, dtype=torch.bfloat16)
        self.norm = torch.nn.Module()
        self.norm.weight = torch.nn.Parameter(torch.zeros(6))
        self.register_buffer("steps", torch.zeros(3, dtype=torch.int64))


def state_of_rank(rank, full):
    """The state dict of a rank of FSDP2 over tensor parallelism, filled with elements or with zeros."""
    model = Model()
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if full:
                tensor.copy_(filled(name, tensor.shape, tensor.dtype))
            else:
                tensor.zero_()
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    parallelize_module(model, mesh["tp"], {"mlp.up": ColwiseParallel(), "mlp.down": RowwiseParallel()})
    for part in (model.mlp.up, model.mlp.down, model):
        fully_shard(part, mesh=mesh["dp"])
    state = model.state_dict()
    first, rows = sum(HEAD_ROWS[:rank]), HEAD_ROWS[rank]
    head = filled("head.weight", (9, 6), torch.float64)[first:first + rows] if full else torch.zeros(rows, 6).double()
    shards = [Shard(head.clone(), ShardMetadata([first, 0], [rows, 6], f"rank:{rank}/cpu"))] if rows else []
    state["head.weight"] = init_from_local_shards(shards, 9, 6)
    return state


def bits(value):
    if hasattr(value, "local_shards"):
        return [bits(shard.tensor) for shard in value.local_shards()]
    local = value.to_local() if hasattr(value, "to_local") else value
    return tuple(local.shape), str(local.dtype), local.detach().contiguous().flatten().view(torch.uint8).tolist()


def save(rank, world, folder):
    state = state_of_rank(rank, True)
    dcp.save({"model": state}, checkpoint_id=folder)
    return sorted(state)


def load(rank, world, folders):
    wrong = []
    expected = {name: bits(value) for name, value in state_of_rank(rank, True).items()}
    for folder in folders:
        state = state_of_rank(rank, False)
        dcp.load({"model": state}, checkpoint_id=folder)
        wrong += [f"{Path(folder).name}: {name}" for name in expected if bits(state[name]) != expected[name]]
    return wrong


def run(program, launcher, ranks, what, folder):
    mesh, rules = DEALINGS[ranks]
    start = [launcher, "--oversubscribe", "--allow-run-as-root", "--mca", "mpi_yield_when_idle", "1", "-n", str(ranks),
             program, "mpi"] if launcher else [program, "threads", str(ranks)]
    ran = subprocess.run([*start, what, folder, mesh, *rules], capture_output=True, text=True, timeout=120)
    return "" if ran.returncode == 0 else f"{' '.join(start)} {what} {mesh}: {ran.stdout}{ran.stderr}"


def main(program, launcher=None):
    kinds = [(None, ranks) for ranks in DEALINGS] + [(launcher, ranks) for ranks in (2, 4) if launcher]
    if not launcher:
        print("without MPI: mpirun or the room mpi is missing")
    wrong = []
    with tempfile.TemporaryDirectory(prefix="shardmesh-torch-ranks-") as folder:
        theirs = str(Path(folder, "theirs"))
        names = run_ranks(4, save, theirs)
        if names[0] != sorted([*Model().state_dict(), "head.weight"]):
            wrong.append(f"PyTorch's ranks saved {names[0]}")
        folders = []
        for with_mpi, ranks in kinds:
            wrong.append(run(program, with_mpi, ranks, "load", theirs))
            folders.append(str(Path(folder, f"{'mpi' if with_mpi else 'threads'}_{ranks}")))
            wrong.append(run(program, with_mpi, ranks, "save", folders[-1]))
        if not any(wrong):
            wrong += [text for texts in run_ranks(4, load, folders) for text in texts]
    wrong = [text for text in wrong if text]
    print("\n".join(wrong) or f"{len(kinds)} groups of ranks of C++ loaded what PyTorch's ranks saved, and the reverse")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
