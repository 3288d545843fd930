# SPDX-License-Identifier: Apache-2.0
"""Loads checkpoints of the same bytes into device memory, with a warm page cache, by shardmesh and its peers. Prints one
line of JSON for each loader: GiB/s of the best of two loads, or the reason why it was not measured.

    loads.py KIT WORK BYTES DEVICE
"""
import json
import os
import shutil
import sys
import sysconfig
import time
import zipfile
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp

GIB = 1 << 30
TENSORS = 64
BUFFER = 32 << 20
RUNS = 2


class Kept(dict):
    """Tensors and the object whose memory they are."""


class WrongBytes(Exception):
    """A loader returned other values: unlike a missing peer, this fails the part."""


def synchronize(device):
    if device == "cuda":
        torch.cuda.synchronize()


def made(size):
    """The tensors that all checkpoints hold: bfloat16 in rows of 1024."""
    rows = max(1, size // TENSORS // 2 // 1024)
    one = torch.randint(-(1 << 15), 1 << 15, (rows, 1024), dtype=torch.int16)
    return {f"layer.{i}.weight": (one + i).view(torch.bfloat16) for i in range(TENSORS)}


def write_safetensors(path, tensors):
    """Without the package, so that the other loaders do not need it."""
    header, at = {}, 0
    for key, tensor in tensors.items():
        size = tensor.numel() * tensor.element_size()
        header[key] = {"dtype": "BF16", "shape": list(tensor.shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors.values():
            file.write(tensor.view(torch.uint8).numpy())


def plain(path, device):
    """The floor: two pinned buffers, pread into one while the other is copied. The tensors are not cut apart."""
    size = os.path.getsize(path)
    whole = torch.empty(size, dtype=torch.uint8, device=device)
    buffers = [torch.empty(min(BUFFER, size), dtype=torch.uint8, pin_memory=device == "cuda") for _ in range(2)]
    copied = [torch.cuda.Event() if device == "cuda" else None for _ in buffers]
    file = os.open(path, os.O_RDONLY)
    try:
        at, turn = 0, 0
        while at < size:
            if copied[turn] is not None:
                copied[turn].synchronize()
            count = os.preadv(file, [memoryview(buffers[turn].numpy())[:size - at]], at)
            whole[at:at + count].copy_(buffers[turn][:count], non_blocking=True)
            if copied[turn] is not None:
                copied[turn].record()
            at, turn = at + count, 1 - turn
    finally:
        os.close(file)
    return None


def by_safetensors(path, device):
    import safetensors.torch
    return safetensors.torch.load_file(path, device=device)


def by_fastsafetensors(path, device):
    from fastsafetensors import SafeTensorsFileLoader, SingleGroup
    loader = SafeTensorsFileLoader(SingleGroup(), device="cuda:0" if device == "cuda" else device)
    loader.add_filenames({0: [str(path)]})
    files = loader.copy_files_to_device()
    found = Kept({key: files.get_tensor(key) for key in loader.get_keys()})
    found.owner = loader, files
    return found


def by_torch(path, device):
    return torch.load(path, map_location=device)


class Loads:
    def __init__(self, kit, work, size, device):
        self.kit, self.work, self.device = Path(kit), Path(work), device
        self.tensors = made(size)
        self.bytes = sum(t.numel() * t.element_size() for t in self.tensors.values())
        self.floor = None

    def row(self, form, loader, **numbers):
        print(json.dumps({"format": form, "loader": loader, **numbers}), flush=True)

    def measure(self, form, name, load, path):
        """Times a loader, and compares two tensors of what it returns."""
        best = None
        try:
            for _ in range(RUNS):
                synchronize(self.device)
                began = time.perf_counter()
                found = load(path, self.device)
                synchronize(self.device)
                took = time.perf_counter() - began
                best = min(best or took, took)
                if found is not None:
                    for key in (next(iter(self.tensors)), next(reversed(self.tensors))):
                        if not torch.equal(found[key].cpu().view(torch.int16), self.tensors[key].view(torch.int16)):
                            raise WrongBytes(f"{form}: {name} loaded other bytes of {key}")
                del found
        except WrongBytes:
            raise
        except Exception as error:  # a peer that is missing or fails is a row of the report
            first = (str(error).splitlines() or [""])[0]
            return self.row(form, name, reason=f"{type(error).__name__}: {first}")
        rate = self.bytes / best / GIB
        self.floor = self.floor or rate
        self.row(form, name, gib_s=round(rate, 2), seconds=round(best, 3), of_plain=round(rate / self.floor, 2))

    def empty(self):
        return {key: torch.empty_like(tensor, device=self.device) for key, tensor in self.tensors.items()}

    def by_dcp(self, path, device):
        state = self.empty()
        dcp.load(state, checkpoint_id=path)
        return state

    def ours(self):
        """shardmesh's loader: from this Python, or from the kit's wheel if it fits."""
        folder = self.work / "wheel"
        tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
        for wheel in sorted(self.kit.glob(f"wheel/shardmesh-*-{tag}-*.whl")):
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(folder)
            sys.path.insert(0, str(folder))
        import shardmesh

        def load(path, device):
            state = self.empty()
            shardmesh.open(path).load_into(state)
            return state
        return load

    def shardmesh_rows(self, form, path):
        try:
            load = self.ours()
        except Exception as error:
            tag = sysconfig.get_config_var("SOABI")
            self.row(form, "shardmesh, to host and copied", reason=f"no wheel of the kit fits {tag}: {error}")
        else:
            self.measure(form, "shardmesh, to host and copied", load, path)
        self.row(form, "shardmesh, direct", reason="it has no loads directly into device memory yet")

    def run(self):
        folder = self.work / "loads"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        try:
            path = folder / "model.safetensors"
            write_safetensors(path, self.tensors)
            self.measure("safetensors", "plain pread + cudaMemcpyAsync", plain, path)
            self.measure("safetensors", "safetensors.torch.load_file", by_safetensors, path)
            self.measure("safetensors", "fastsafetensors", by_fastsafetensors, path)
            self.shardmesh_rows("safetensors", path)
            path.unlink()
            path = folder / "dcp"
            dcp.save(dict(self.tensors), storage_writer=dcp.FileSystemWriter(path, thread_count=4, sync_files=False))
            self.measure("DCP", "dcp.load", self.by_dcp, path)
            self.shardmesh_rows("DCP", path)
            shutil.rmtree(path)
            path = folder / "model.pt"
            torch.save(self.tensors, path)
            self.measure("torch.save", "torch.load(map_location)", by_torch, path)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def main(kit, work, size, device):
    size, free = int(size), shutil.disk_usage(work).free
    if 2 * size > free:
        size = free // 4
        print(f"there are {free / GIB:.1f} GiB free in {work}: {size / GIB:.2f} GiB are loaded", flush=True)
    Loads(kit, work, size, device).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
