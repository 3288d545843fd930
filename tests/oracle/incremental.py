# SPDX-License-Identifier: Apache-2.0
"""PyTorch reads incremental checkpoints. Four ranks save the steps of a random run, each of which refers to the chunks
of the step before that have not changed. torch.distributed.checkpoint.load must return every value of every step, and
the tool must show, verify, convert, and reshard each step."""
import json
import os
import random
import shutil
import subprocess
import warnings
from pathlib import Path

from common import Oracle, need_torch, seed as common_seed

need_torch()
warnings.filterwarnings("ignore")
import torch  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402
from torch.distributed.checkpoint import FileSystemReader  # noqa: E402

RANKS = 4
STEPS = 5
FAILURES = (Exception, dcp.api.CheckpointException)  # PyTorch's own is a BaseException


def random_state(dice):
    shapes = {f"layers.{i}.w": (dice.randrange(1, 40), dice.randrange(1, 30)) for i in range(dice.randrange(2, 8))}
    state = {key: torch.randn(shape) for key, shape in shapes.items()}
    return {**state, "half": torch.randn(64, 3).to(torch.bfloat16), "count": torch.tensor(7), "none": torch.zeros(0, 2)}


def load(folder, like):
    """The folder's tensors, as PyTorch loads them."""
    state = {key: torch.full_like(tensor, 99) for key, tensor in like.items()}
    dcp.load(state, checkpoint_id=folder, no_dist=True)
    return state


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


def save(oracle, source, folder, previous):
    options = [] if previous is None else ["--previous", previous]
    done = subprocess.run([oracle.args.ranks.resolve(), source, folder, str(RANKS), *options], capture_output=True, text=True)
    return oracle.check(done.returncode == 0, folder.name, done.stderr.strip())


def references(folder):
    """The folders that `.metadata` refers to, as PyTorch reads it."""
    paths = {info.relative_path for info in FileSystemReader(folder).read_metadata().storage_data.values()}
    return {path.split("/")[1] for path in paths if "/" in path}


def check_step(oracle, folder, state):
    name = folder.name
    try:
        oracle.check(same(load(folder, state), state), name, "PyTorch loads other values")
    except FAILURES as error:
        oracle.check(False, name, f"PyTorch cannot read it: {type(error).__name__}: {error}")
    oracle.succeeds(name, "verify", folder, "--strict")
    shown = oracle.succeeds(name, "inspect", folder, "--json")
    referred = json.loads(shown).get("referred", {"folders": []}) if shown else {}
    oracle.check(set(referred.get("folders", ())) == references(folder), name, f"inspect shows {referred}")
    text = oracle.succeeds(name, "inspect", folder) or ""
    oracle.check(("  referred    " in text) == bool(references(folder)), name, f"inspect prints {text[:400]}")


def check_alone(oracle, run, last, state):
    """Copies hold everything when the run is gone; the step itself does not."""
    copies = {"flat": ("convert", "--to", "dcp"), "cut": ("reshard", "--mesh", "3")}
    for name, (command, *options) in copies.items():
        oracle.succeeds(name, command, last, oracle.work / name, *options)
    for step in references(last):
        shutil.move(run / step, oracle.work / f"away-{step}")
    status, out, err = oracle.run("verify", last)
    oracle.check(status == 1 and "is missing" in out + err, last.name, f"verify exits {status} without the files: {err[:300]}")
    for name in copies:
        oracle.check(same(load(oracle.work / name, state), state), name, "PyTorch loads other values")
        oracle.check(references(oracle.work / name) == set(), name, "it does not stand alone")


def main():
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    oracle = Oracle(__doc__, lambda parser: parser.add_argument("--ranks", type=Path, required=True, help="rank_copy"))
    seed = common_seed()
    dice = random.Random(seed)
    torch.manual_seed(seed)
    state, run, states, before = random_state(dice), oracle.work / "run", [], None
    run.mkdir()
    for step in range(STEPS):
        for key in [key for key in state if key.startswith("layers") and dice.randrange(3) == 0]:
            state[key] = state[key] + 1
        state["count"] = torch.tensor(step)  # changes in every step
        source, folder = oracle.work / f"source-{step}", run / f"step-{step}"
        dcp.save(state, checkpoint_id=source, no_dist=True)
        if not save(oracle, source, folder, before):
            oracle.finish()
        states.append(dict(state))
        before = folder
    for step in range(STEPS):
        check_step(oracle, run / f"step-{step}", states[step])
    oracle.check(references(run / "step-0") == set(), "step-0", "the first step refers to others")
    oracle.check(references(before) != set(), before.name, "the last step refers to no other")
    check_alone(oracle, run, before, states[-1])
    oracle.finish()


if __name__ == "__main__":
    main()
