# SPDX-License-Identifier: Apache-2.0
"""Objects of safetensors' objects.json. The C++ half makes the archive that torch.save would write for the plain data,
in a protocol that PyTorch's restricted unpickler does not read. This unpickler looks up only the types of plain data,
whatever the file names."""
from __future__ import annotations

import io
import pickle
import zipfile
from typing import Any

PLAIN = {"builtins": ("bytearray", "complex", "frozenset", "range", "set", "slice"), "collections": ("OrderedDict",),
         "_codecs": ("encode",),  # bytes, in protocol 2
         "torch": ("Size", "device")}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        import torch

        is_dtype = module == "torch" and isinstance(getattr(torch, name, None), torch.dtype)
        if not is_dtype and name not in PLAIN.get(module, ()):
            raise pickle.UnpicklingError(f"{module}.{name} is more than plain data")
        return super().find_class(module, name)


def load(archive: bytes) -> Any:
    """Returns the object in a torch.save archive without tensors. Raises pickle.UnpicklingError unless it is plain
    data."""
    with zipfile.ZipFile(io.BytesIO(archive)) as records:
        (name,) = [one for one in records.namelist() if one.endswith("/data.pkl")]
        return _Unpickler(io.BytesIO(records.read(name))).load()
