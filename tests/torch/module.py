# SPDX-License-Identifier: Apache-2.0
"""A module goes from PyTorch to LibTorch and back, through checkpoints. PyTorch saves a checkpoint, the example
torch_module_checkpoint loads it into its own module and saves that, and PyTorch loads the result.

    module.py EXAMPLE     the program; its model is the one below
"""
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.mlp = torch.nn.Module()
        self.mlp.up, self.mlp.down = torch.nn.Linear(10, 16), torch.nn.Linear(16, 6)
        self.norm, self.head = torch.nn.LayerNorm(6), torch.nn.Linear(6, 4, bias=False)


def main(program):
    with tempfile.TemporaryDirectory() as folder:
        saved, loaded = Model(), Model()
        dcp.save({"model": saved.state_dict(), "epoch": 3}, checkpoint_id=Path(folder, "theirs"))
        ran = subprocess.run([program, Path(folder, "theirs")], cwd=folder, capture_output=True, text=True)
        if ran.returncode != 0 or ran.stdout.count(" 0 differ") != 2:
            return f"the example says: {ran.stdout}{ran.stderr}"
        state = {"model": loaded.state_dict()}
        dcp.load(state, checkpoint_id=Path(folder, "torch_module.checkpoint"))
        loaded.load_state_dict(state["model"])
        for name, tensor in saved.state_dict().items():
            if not torch.equal(tensor, loaded.state_dict()[name]):
                return f"{name} came back with other elements"
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
