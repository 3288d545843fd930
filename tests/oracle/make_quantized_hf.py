# SPDX-License-Identifier: Apache-2.0
"""Writes tests/data/writers/quantized_hf: `checkpoint`, a Hugging Face folder of two files with FP8 blocks and
MXFP4, and `expected.json`, the output of PyTorch 2.13's QuantizedHuggingFaceStorageReader (digests of little-endian
bytes). Run by hand; its output is committed: make_quantized_hf.py FOLDER"""
import hashlib
import json
import sys
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import save_file
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex
from torch.distributed.checkpoint.quantized_hf_storage import QuantizedHuggingFaceStorageReader


class WholeTensors(QuantizedHuggingFaceStorageReader):
    """PyTorch's reader, made to read all of MXFP4. PyTorch 2.13 corrects the size of such a tensor, but not of its
    chunk, which stays [.., groups, bytes]. So it loads only as many values of every row as there are groups, and
    leaves the rest unchanged."""

    def read_metadata(self):
        metadata = super().read_metadata()
        for key, entry in metadata.state_dict_metadata.items():
            if key.endswith("_blocks"):
                entry.chunks = [ChunkStorageMetadata(torch.Size([0] * len(entry.size)), entry.size)]
                (index,) = [index for index in metadata.storage_data if index.fqn == key]
                place = metadata.storage_data.pop(index)
                metadata.storage_data[MetadataIndex(key, entry.chunks[0].offsets)] = place
        return metadata


def bytes_of(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def write_folder(folder, files):
    """Writes an index and its files, {file: {key: tensor}}."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, tensors in files.items():
        save_file(tensors, folder / name)
        (folder / name).chmod(0o644)
    (folder / "model.safetensors.index.json").write_text(json.dumps(
        {"metadata": {}, "weight_map": {key: name for name, tensors in files.items() for key in tensors}}))


def read_with_torch(folder, shapes, target):
    """The whole tensors of these shapes that PyTorch's reader returns."""
    state = {key: torch.zeros(shape, dtype=target) for key, shape in shapes.items()}
    dcp.load(state, storage_reader=WholeTensors(str(folder), target_dtype=target), no_dist=True)
    return state


def fp8(rows, columns, type=torch.float8_e4m3fn):
    """Every code, including NaNs, in an order that no block repeats."""
    return (torch.arange(rows * columns) * 7 % 251 + torch.arange(rows * columns) // 999).to(torch.uint8).reshape(rows, columns).view(type)


def main(folder):
    scales = (torch.arange(4, dtype=torch.float32).reshape(2, 2) + 1) / 3 * torch.tensor([1e-3, -7.0])
    files = {"model-00001-of-00002.safetensors": {
                 "a.weight": fp8(133, 150), "b.weight": fp8(3, 129, torch.float8_e5m2),
                 "experts.up_blocks": (torch.arange(4 * 8 * 8 * 16) * 11 % 256).to(torch.uint8).reshape(4, 8, 8, 16),
                 "norm.weight": torch.linspace(-1, 1, 5, dtype=torch.bfloat16)},
             "model-00002-of-00002.safetensors": {
                 "a.weight_scale_inv": scales, "b.weight_scale_inv": torch.tensor([[0.37, 250.0]], dtype=torch.bfloat16),
                 "experts.up_scales": torch.arange(256).to(torch.uint8).reshape(4, 8, 8)}}
    write_folder(folder / "checkpoint", files)
    shapes = {"a.weight": (133, 150), "b.weight": (3, 129), "experts.up_blocks": (4, 8, 256)}
    expected = {}
    for target in (torch.float32, torch.bfloat16, torch.float16):
        loaded = read_with_torch(folder / "checkpoint", shapes, target)
        expected[str(target).removeprefix("torch.")] = {
            key: {"shape": list(tensor.shape), "sha256": hashlib.sha256(bytes_of(tensor)).hexdigest()}
            for key, tensor in loaded.items()}
    (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
