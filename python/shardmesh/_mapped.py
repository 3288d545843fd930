# SPDX-License-Identifier: Apache-2.0
"""MappedTensor: a tensor, or a box of one, in place in a checkpoint's file. `Checkpoint.load` reads instead."""
from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from . import _native
from ._arguments import flag, shown, wrong
from ._error import failure
from ._tensors import dtype_named, fresh, refuse_overflow

if TYPE_CHECKING:
    import numpy
    import torch

#: Element types that numpy has, under numpy's names.
_OF_NUMPY = {"bool": "bool", "uint8": "uint8", "int8": "int8", "int16": "int16", "int32": "int32", "int64": "int64",
             "uint16": "uint16", "uint32": "uint32", "uint64": "uint64", "float16": "float16", "float32": "float32",
             "float64": "float64", "complex64": "complex64", "complex128": "complex128"}


class MappedTensor:
    """Read-only memory of a file, which is read when it is accessed. Made by `Checkpoint.map_tensor`.

    `mapped.numpy()` is read-only. The file stays mapped as long as this object, or anything made from it, lives, even
    after the checkpoint. If the file becomes shorter, access to the lost part kills the process (SIGBUS); `check()`
    detects this beforehand. Replacing or removing the file is harmless.
    """

    def __init__(self, key: str, path: str, memory: _native.MappedMemory) -> None:
        if not isinstance(memory, _native.MappedMemory):
            raise failure("invalid_argument", "a MappedTensor is made by Checkpoint.map_tensor", found=shown(memory))
        self.key = key
        self._path = path
        self._memory = memory

    @property
    def dtype(self) -> str:
        """PyTorch's name, such as "float32"."""
        return self._memory.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self._memory.shape

    @property
    def strides(self) -> tuple[int, ...]:
        """The strides in the file, in elements."""
        return self._memory.strides

    @property
    def nbytes(self) -> int:
        """Bytes from the first element to the last, gaps included."""
        return memoryview(self._memory).nbytes

    def check(self) -> None:
        """Raises Error, of code "io", if the file is now shorter than the mapping."""
        self._memory.check()

    def numpy(self) -> numpy.ndarray:
        """Returns a read-only array of this memory. Raises Error: unsupported for bfloat16 and other dtypes that numpy
        lacks."""
        import numpy

        name = _OF_NUMPY.get(self.dtype)
        if name is None:
            raise failure("unsupported", f"numpy has no dtype {self.dtype}", key=self.key, path=self._path,
                          hint="call torch()")
        dtype = numpy.dtype(name)
        steps = tuple(step * dtype.itemsize for step in self.strides)
        if 0 in self.shape:
            refuse_overflow(self.shape, dtype.itemsize, self.key, self._path)
            return numpy.frombuffer(b"", dtype).reshape(self.shape)
        return numpy.ndarray(self.shape, dtype, buffer=self._memory, strides=steps)

    def torch(self) -> torch.Tensor:
        """Returns a tensor of this memory, of any dtype that PyTorch has. PyTorch has no read-only tensors: writing to
        this one kills the process (SIGSEGV). Raises Error: unaligned if elements do not begin at a multiple of their
        size (`numpy()` accepts those)."""
        import torch

        dtype = dtype_named(self.dtype, self.key)
        size = memoryview(self._memory).nbytes
        if size == 0:
            return fresh(self.shape, dtype, key=self.key)
        item = dtype.itemsize // 2 if dtype.is_complex else dtype.itemsize
        beyond = self._memory.address % item
        if beyond:
            raise failure("unaligned", "its first byte is not aligned for its dtype in PyTorch", key=self.key,
                          path=self._path, expected=f"an address at a multiple of {item} bytes",
                          found=f"an address {beyond} byte{'s' * (beyond > 1)} after a multiple",
                          hint="call numpy(), or load it")
        # frombuffer of the memory itself would warn about a read-only buffer. The array keeps the mapping alive.
        held = (ctypes.c_ubyte * size).from_address(self._memory.address)
        held._memory = self._memory  # type: ignore[attr-defined]
        flat = torch.frombuffer(held, dtype=torch.uint8)
        return torch.empty(0, dtype=dtype).set_(flat.untyped_storage(), 0, self.shape, self.strides)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> numpy.ndarray:
        """For numpy.asarray. Raises ValueError, as numpy does, if copy=False and another dtype needs a copy."""
        import numpy

        made = self.numpy()
        try:
            wanted = made.dtype if dtype is None else numpy.dtype(dtype)
        except Exception as cause:  # from the class of the caller's dtype
            raise wrong("dtype", "a dtype of numpy", dtype, self.key) from cause
        must_copy = copy is not None and flag("copy", copy)
        if copy is not None and not must_copy and wanted != made.dtype:
            raise ValueError(f"{self.key}: {wanted} needs a copy of {made.dtype}")
        try:
            return made.astype(wanted, copy=must_copy)
        except (TypeError, ValueError) as cause:
            raise failure("unsupported", f"numpy cannot convert {made.dtype} to {wanted}", key=self.key,
                          path=self._path) from cause

    def __repr__(self) -> str:
        return f"<shardmesh.MappedTensor {self.key}: {self.dtype}{list(self.shape)}>"
