# SPDX-License-Identifier: Apache-2.0
"""Items that were written through stream extensions (PyTorch's experimental StreamTransformExtension). Their bytes go
through the caller's extensions, as in PyTorch's own reader."""
from __future__ import annotations

import builtins
import io
import os
from collections.abc import Sequence
from typing import Any

import torch

from .. import _arguments
from .._checkpoint import Checkpoint
from .._error import Box, failure
from ._cover import covers_once

Where = tuple[Sequence[int], Sequence[int]]


class Transforms:
    def __init__(self, registry: Any) -> None:
        if registry is not None and not callable(getattr(type(registry), "from_descriptor_list", None)):
            raise _arguments.wrong("extension_registry", "an ExtensionRegistry of torch.distributed.checkpoint", registry)
        self._registry = registry

    @property
    def are_known(self) -> bool:
        return self._registry is not None

    def object_of(self, checkpoint: Checkpoint, key: str, names: Sequence[str]) -> bytes:
        """Returns the object as torch.save wrote it."""
        return self._decoded(checkpoint, key, checkpoint._native.object_places()[checkpoint[key]._index], names)

    def fill(self, checkpoint: Checkpoint, key: str, where: Where, target: torch.Tensor, names: Sequence[str]) -> None:
        """Fills a box of a tensor from every chunk that overlaps it."""
        offsets, sizes = where
        parts, known = [], set()
        for begin, extent, *place in checkpoint._native.chunks(checkpoint[key]._index):
            low = [max(a, b) for a, b in zip(offsets, begin)]
            high = [min(a + b, c + d) for a, b, c, d in zip(offsets, sizes, begin, extent)]
            if any(one >= other for one, other in zip(low, high)) or (stored_box := (tuple(begin), tuple(extent))) in known:
                continue
            known.add(stored_box)
            stored = self._tensor(checkpoint, key, place, names)
            if tuple(stored.shape) != tuple(extent):
                raise failure("shape_mismatch", "the stored sizes are not the declared ones", key=key,
                              path=checkpoint.path, expected=str(list(extent)), found=str(list(stored.shape)))
            to, part = target.detach(), stored
            for dimension, (a, b) in enumerate(zip(low, high)):
                to = to.narrow(dimension, a - offsets[dimension], b - a)
                part = part.narrow(dimension, a - begin[dimension], b - a)
            to.copy_(part)
            parts.append((low, [b - a for a, b in zip(low, high)]))
        if not covers_once(parts, where):
            raise failure("gap", "some elements of the box are not stored once", key=key, path=checkpoint.path,
                          expected=str(Box(tuple(offsets), tuple(sizes))),
                          found=" ".join(str(Box(tuple(begin), tuple(extent))) for begin, extent in parts[:10]) or "none")

    def _tensor(self, checkpoint: Checkpoint, key: str, place: Sequence[Any], names: Sequence[str]) -> torch.Tensor:
        archive = self._decoded(checkpoint, key, place, names)
        try:
            made = torch.load(io.BytesIO(archive), map_location="cpu", weights_only=True)
        except Exception as cause:
            raise failure("bad_format", f"cannot be read behind its stream extensions: {cause}", key=key,
                          path=checkpoint.path) from cause
        if not isinstance(made, torch.Tensor):
            raise failure("bad_format", "the item is not a tensor", key=key, path=checkpoint.path,
                          expected="torch.Tensor", found=type(made).__name__)
        return made

    def _decoded(self, checkpoint: Checkpoint, key: str, place: Sequence[Any], names: Sequence[str]) -> bytes:
        file, offset, length, _ = place
        try:
            with builtins.open(os.path.join(checkpoint.path, file), "rb") as stored:
                stored.seek(offset)
                stream: Any = io.BytesIO(stored.read(length))
            for extension in self._registry.from_descriptor_list(names):
                if hasattr(extension, "transform_from"):
                    stream = extension.transform_from(stream)
            return stream.read(-1)
        except Exception as cause:  # includes those of the caller's extensions
            raise failure("unsupported", f"cannot be read through its stream extensions: {type(cause).__name__}: {cause}",
                          key=key, path=checkpoint.path, found="+".join(names)) from cause
