# SPDX-License-Identifier: Apache-2.0
"""A checkpoint's description, in the form that PyTorch's planners and reader use."""
from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from typing import Any

import torch
from torch.distributed.checkpoint import filesystem
from torch.distributed.checkpoint import metadata as dcp

from .._checkpoint import Checkpoint, ObjectEntry, TensorEntry
from .._error import failure
from ._cover import covers_once


class _Chunks(list):
    """The chunks of a tensor. A planner iterates over them to plan reads, and would leave elements that no chunk holds
    as they are. The first iteration raises Error, of code "gap", unless the chunks hold each element once."""

    def __init__(self, key: str = "", path: str = "", shape: tuple[int, ...] = ()) -> None:
        super().__init__()
        self._key, self._path, self._shape = key, path, shape
        self._is_checked = False

    def __iter__(self) -> Iterator[dcp.ChunkStorageMetadata]:
        if not self._is_checked:
            # Equal boxes are copies.
            boxes = {(tuple(chunk.offsets), tuple(chunk.sizes)) for chunk in super(_Chunks, self).__iter__()}
            if not covers_once(boxes, ((0,) * len(self._shape), self._shape)):
                raise failure("gap", "its chunks do not hold each of its elements once", key=self._key, path=self._path,
                              found=f"{len(self)} chunks", hint="run shardmesh verify, which names the boxes; "
                              "shardmesh.dcp.load needs only the boxes of this rank")
            self._is_checked = True
        return super().__iter__()

    def __reduce__(self) -> Any:
        return list, (list(self),)


def description_of(checkpoint: Checkpoint, load_id: str, *, with_places: bool = True) -> dcp.Metadata:
    """Describes a checkpoint. with_places: fill storage_data, which planners do not need."""
    described: dict[str, Any] = {}
    paths: dict[str, tuple] = {}
    places: dict[dcp.MetadataIndex, Any] | None = {} if with_places else None
    of_objects = checkpoint._native.object_places() if with_places else []
    for key, entry in checkpoint.items():
        paths[key] = entry.path
        if isinstance(entry, ObjectEntry):
            described[key] = dcp.BytesStorageMetadata()
            if places is not None:
                _add_place(places, dcp.MetadataIndex(key), of_objects[entry._index])
        else:
            described[key] = _tensor(entry, checkpoint, places)
    of_save = dcp.StorageMeta(checkpoint_id=checkpoint.path, save_id=checkpoint._native.save_id or None, load_id=load_id)
    return dcp.Metadata(described, planner_data=paths, storage_data=places or {}, storage_meta=of_save,
                        version=checkpoint._native.version or None)


def _tensor(entry: TensorEntry, checkpoint: Checkpoint, places: dict | None) -> dcp.TensorStorageMetadata:
    # PyTorch may lack the dtype, or shardmesh may not read the representation: only loading such a tensor is an error.
    dtype = getattr(torch, entry.dtype, torch.uint8)
    chunks = _Chunks(entry.key, checkpoint.path, entry.shape)
    for number, (offsets, sizes, *place) in enumerate(checkpoint._native.chunks(entry._index)):
        chunks.append(dcp.ChunkStorageMetadata(torch.Size(offsets), torch.Size(sizes)))
        if places is not None:
            _add_place(places, dcp.MetadataIndex(entry.key, offsets, number), place)
    return dcp.TensorStorageMetadata(dcp.TensorProperties(dtype=dtype, requires_grad=entry.requires_grad),
                                     torch.Size(entry.shape), chunks)


def _add_place(places: dict, index: dcp.MetadataIndex, place: Any) -> None:
    """Adds a place if it is known. A tensor that is composed of several others has none."""
    file, offset, length, transform = place
    if not file:
        return
    info = filesystem._StorageInfo(file, offset, length)
    if transform:
        info.transform_descriptors = transform.split("+")  # a list, as PyTorch has it
    places[index] = info


def transforms_of(checkpoint: Checkpoint) -> dict[str, tuple[str, ...]]:
    """Returns the stream extensions of each entry that was written through extensions that shardmesh does not read."""
    found: dict[str, tuple[str, ...]] = {}
    if checkpoint.format != "dcp":
        return found
    of_objects = checkpoint._native.object_places()
    for key, entry in checkpoint.items():
        places = ([of_objects[entry._index]] if isinstance(entry, ObjectEntry)
                  else [chunk[2:] for chunk in checkpoint._native.chunks(entry._index)])
        for *_, transform in places:
            if transform and (not transform.startswith("stream.zstd") or "+" in transform):
                found[key] = tuple(transform.split("+"))
    return found


def is_of_ranks(checkpoint: Checkpoint) -> bool:
    """Whether ranks described it separately (use_collectives=False)."""
    folder = checkpoint.path
    return (checkpoint.format == "dcp" and not os.path.exists(os.path.join(folder, ".metadata"))
            and bool(glob.glob("__*.metadata", root_dir=folder)))
