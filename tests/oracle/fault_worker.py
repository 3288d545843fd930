# SPDX-License-Identifier: Apache-2.0
"""Loads and saves checkpoints under URLs in one process of Python, by orders of remote_faults.py on its standard input.
An order and its answer are a line of JSON each."""
import hashlib
import json
import sys

import shardmesh
import torch

STATE = {"weight": torch.arange(600.0).reshape(20, 30), "bias": torch.arange(7, dtype=torch.int16), "epoch": 3}


def load(url):
    """The digest of all values of a checkpoint."""
    checkpoint, digest = shardmesh.open(url), hashlib.sha256()
    for key in sorted(checkpoint):
        value = checkpoint.load(key)
        data = value.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if torch.is_tensor(value) else \
            repr(value).encode()
        digest.update(f"{key} {getattr(value, 'dtype', '')} {getattr(value, 'shape', '')}".encode() + data)
    return digest.hexdigest()


def save(url):
    return repr(shardmesh.save(STATE, url))


def main():
    for line in sys.stdin:
        order = json.loads(line)
        try:
            answer = {"status": 0, "value": {"load": load, "save": save}[order["verb"]](order["url"])}
        except shardmesh.Error as error:
            answer = {"status": 1, "said": str(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
