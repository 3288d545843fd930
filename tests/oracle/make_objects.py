# SPDX-License-Identifier: Apache-2.0
"""Writes tests/data/objects: small .pt files with objects that hold tensors, and PyTorch's reading of them. Run by
hand: python tests/oracle/make_objects.py FOLDER. The classes belong to this script; reading the files needs none of
them."""
import collections
import dataclasses
import hashlib
import json
import sys
from pathlib import Path

import torch
from torch import nn


@dataclasses.dataclass
class State:
    w: torch.Tensor
    step: int


class Slots:
    __slots__ = ("t", "n")

    def __init__(self):
        self.t, self.n = torch.arange(3.0), 4


class Call:
    def __init__(self, tensor):
        self.tensor = tensor

    def __reduce__(self):
        return Call, (self.tensor,)


Point = collections.namedtuple("Point", "x y")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(2, 3), nn.BatchNorm1d(3)])
        self.tied = self.layers[0]
        self.register_buffer("transient", torch.arange(4), persistent=False)
        self.register_buffer("kept", torch.arange(5))


def described(tensor):
    data = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return {"dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape),
            "sha256": hashlib.sha256(data).hexdigest()}


def main():
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    t = [torch.rand(n + 1) for n in range(6)]
    parent = Slots()
    parent.n = parent
    net = Net()
    cases = {
        "containers": (
            {"tuple": (t[0], 2), "point": Point(t[1], 7), "data": State(t[2], 5), "slots": Slots(), "set": {t[3]},
             "cycle": parent, "deep": [((t[4],), "a")], "call": Call(t[5]), "plain": (1, 2)},
            {"tuple.0": t[0], "point.0": t[1], "data.w": t[2], "slots.t": torch.arange(3.0), "set.0": t[3],
             "cycle.t": torch.arange(3.0), "deep.0.0.0": t[4]},
            {"tuple.1": 0, "point.1": 0, "data.step": 0, "slots.n": 0, "deep.0.1": 0, "call": 1, "plain": 0}),
        "collision": ({"a.0": t[0], "a": (t[1],)}, {"a.0": t[0]}, {"a": 1}),
        "module": (net, net.state_dict(), {}),
    }
    expected = {}
    for name, (value, tensors, hidden) in cases.items():
        torch.save(value, folder / f"{name}.pt")
        expected[name] = {"tensors": {key: described(tensor) for key, tensor in tensors.items()}, "hidden": hidden}
    (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
