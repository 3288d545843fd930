# SPDX-License-Identifier: Apache-2.0
"""PyTorch 2.15 reads our output: every golden DCP checkpoint rewritten, resharded, and made from safetensors, and one
that refers to the files of another. Its packages are gigabytes, so it runs only in ./dev test --release, where
tests/torch/second_torch.py installs them, or with SHARDMESH_TORCH_2_15 as the path of a Python that has them."""
import json
import os
import subprocess
from pathlib import Path

from common import Oracle, skip

# Run by the other Python: the folders' tensors, as that version loads them.
CHILD = """
import hashlib, json, sys, warnings
warnings.filterwarnings("ignore")
import torch, torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import FileSystemReader
def raw(t):
    t = t.resolve_conj().resolve_neg().contiguous()
    n = t.numel() * t.element_size()
    return bytes(torch.empty(0, dtype=torch.uint8).set_(t.untyped_storage(), 0, (n,), (1,)).numpy()) if n else b""
said = {"version": torch.__version__}
for folder in json.load(sys.stdin):
    try:
        entries = FileSystemReader(folder).read_metadata().state_dict_metadata
        state = {k: torch.empty(e.size, dtype=e.properties.dtype) for k, e in entries.items() if hasattr(e, "size")}
        dcp.load(state, checkpoint_id=folder, no_dist=True)
        said[folder] = {k: hashlib.sha256(raw(t)).hexdigest() for k, t in state.items()}
    except BaseException as error:
        said[folder] = f"{type(error).__name__}: {error}"
print(json.dumps(said))
"""


def find_python(oracle):
    named = os.environ.get("SHARDMESH_TORCH_2_15")
    python = Path(named) if named else oracle.args.python
    if not python.exists():
        skip("a download of gigabytes, part of ./dev test --release; SHARDMESH_TORCH_2_15 can name a Python that has torch 2.15")
    return python


def check_checkpointable(oracle, python):
    """Ranks of CheckpointableTensors with several boxes each load our rewrites: the same bits in the same boxes."""
    source = oracle.data / "writers" / "checkpointable" / "checkpoint"
    script = Path(__file__).with_name("make_checkpointable.py")
    for name, arguments in {"same_boxes": ("convert", "--to", "dcp"), "other_boxes": ("reshard", "--mesh", "3", "--default", "S(0)")}.items():
        folder = oracle.work / f"checkpointable_{name}"
        oracle.succeeds(name, arguments[0], source, folder, *arguments[1:])
        child = subprocess.run([python, script, oracle.work / f"ranks_{name}", folder], capture_output=True, text=True)
        oracle.check(child.returncode == 0, name, f"CheckpointableTensor: {child.stderr[-600:]}")
    # The ranks' comparison fails if the checkpoint differs.
    copy = oracle.work / "checkpointable_other"
    oracle.succeeds("other", "convert", source, copy, "--to", "dcp", "--rename", "rows=r2", "--rename", "line=l2", "--dtype", "float64", "--skip",
                    "blocks")
    child = subprocess.run([python, script, oracle.work / "ranks_other", copy], capture_output=True, text=True)
    oracle.check(child.returncode != 0, "other", "ranks load a checkpoint without their tensors")


def incremental(oracle, case):
    """A folder in which every chunk is a reference to another folder."""
    folders = [oracle.work / f"{case.name}.step-{step}" for step in (1, 2)]
    for folder, options in zip(folders, ([], ["--previous", folders[0]])):
        done = subprocess.run([oracle.args.ranks.resolve(), case.checkpoint, folder, "2", *options], capture_output=True, text=True)
        oracle.check(done.returncode == 0 and not done.stdout, f"{case.name}.incremental", done.stderr.strip())
    oracle.check(not list(folders[1].glob("*.distcp")), f"{case.name}.incremental", "unchanged chunks were written")
    return str(folders[1])


def add_arguments(parser):
    parser.add_argument("--python", type=Path, required=True)
    parser.add_argument("--ranks", type=Path, required=True, help="rank_copy")


def main():
    oracle = Oracle(__doc__, add_arguments)
    python = find_python(oracle)
    made = {}
    for case in oracle.cases():
        # torch_reads_ours.py tests dtypes that dcp.load refuses.
        if not case.is_dcp or case.unreadable or case.name == "dtypes":
            continue
        copy, cut = oracle.work / f"{case.name}.copy", oracle.work / f"{case.name}.cut"
        if oracle.succeeds(case.name, "convert", case.checkpoint, copy, "--to", "dcp") is not None:
            made[str(copy)] = case
        if oracle.succeeds(case.name, "reshard", case.checkpoint, cut, "--mesh", "3") is not None:
            made[str(cut)] = case
        if case.name == "dtensor_2d_2x2":
            made[incremental(oracle, case)] = case
    child = subprocess.run([python, "-c", CHILD], input=json.dumps(list(made)), capture_output=True, text=True)
    if not oracle.check(child.returncode == 0, "child", child.stderr[-600:]):
        oracle.finish()
    said = json.loads(child.stdout)
    print(f"read by PyTorch {said['version']}")
    oracle.check(said["version"].startswith("2.15"), "version", f"{python} has torch {said['version']}")
    for folder, case in made.items():
        expected = {key: tensor["sha256"] for key, tensor in case.tensors.items()}
        oracle.check(said[folder] == expected, folder, f"PyTorch says {str(said[folder])[:300]}")
    check_checkpointable(oracle, python)
    oracle.finish()


if __name__ == "__main__":
    main()
