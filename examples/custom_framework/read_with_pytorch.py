# SPDX-License-Identifier: Apache-2.0
"""Does PyTorch read what custom_framework saved? Each tensor is compared, bit for bit, with the same training in torch.

    read_with_pytorch.py FOLDER
"""
import sys

try:
    import torch
    import torch.distributed.checkpoint as dcp
except ImportError as e:
    print(f"skipped: {e}")
    sys.exit(77)


def trained(steps):
    """Trains the model of examples/custom_framework/main.cpp, one float32 operation at a time and in its order."""
    weight, velocity = torch.zeros(8, 4), torch.zeros(8, 4)
    target = torch.tensor([[float(r - 2 * c) for c in range(4)] for r in range(8)])
    for step in range(steps):
        x = torch.tensor([(step * 3 + c * 5) % 7 / 4 - 0.75 for c in range(4)])
        wrong = torch.zeros(8)
        for c in range(4):
            wrong = wrong + (weight[:, c] - target[:, c]) * x[c]
        velocity = 0.5 * velocity + wrong[:, None] * x[None, :]
        weight = weight - 0.0625 * velocity
    return {"model.weight": weight, "optimizer.momentum": velocity}


def main(folder):
    for name, steps in (("first", 50), ("second", 100)):
        state = {"model.weight": torch.full((8, 4), -1.0), "optimizer.momentum": torch.full((8, 4), -1.0), "step": -1}
        dcp.load(state, checkpoint_id=f"{folder}/{name}", no_dist=True)
        for key, expected in trained(steps).items():
            if not torch.equal(state[key], expected):
                print(f"{name}: {key} differs:\n{state[key]}\n{expected}")
                return 1
        if state["step"] != steps:
            print(f"{name}: step is {state['step']}, not {steps}")
            return 1
    print("PyTorch reads both checkpoints: every element is equal")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
