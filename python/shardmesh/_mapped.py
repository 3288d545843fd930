# SPDX-License-Identifier: Apache-2.0
"""MappedTensor: a tensor, or a box of one, where it lies in a checkpoint's file. Not here: reading (Checkpoint.load)."""
from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from . import _native
from ._arguments import flag, shown, wrong
from ._error import failure
from ._tensors import dtype_named

if TYPE_CHECKING:
    import numpy
    import torch

#: Element types that numpy has, as it names them.
_OF_NUMPY = {"bool": "bool", "uint8": "uint8", "int8": "int8", "int16": "int16", "int32": "int32", "int64": "int64",
             "uint16": "uint16", "uint32": "uint32", "uint64": "uint64", "float16": "float16", "float32": "float32",
             "float64": "float64", "complex64": "complex64", "complex128": "complex128"}


class MappedTensor:
    """Memory of a file that is read when it is touched, and never written. Made by `Checkpoint.map_tensor`.

    `mapped.numpy()` is read-only. The file stays mapped while this, or anything that was made
    of it, lives: the checkpoint may go before. A file that becomes shorter meanwhile kills a process that touches what
    it lost (SIGBUS): `check()` tells before. Replacing or removing the file harms nothing.
    """

    def __init__(self, key: str, path: str, memory: _native.MappedMemory) -> None:
        if not isinstance(memory, _native.MappedMemory):
            raise failure("invalid_argument", "a MappedTensor is made by Checkpoint.map_tensor", found=shown(memory))
        self.key = key
        self._path = path
        self._memory = memory

    @property
    def dtype(self) -> str:
        """PyTorch's name, "float32"."""
        return self._memory.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self._memory.shape

    @property
    def strides(self) -> tuple[int, ...]:
        """Those of the file, in elements."""
        return self._memory.strides

    @property
    def nbytes(self) -> int:
        """From the first element to the last, whatever lies between."""
        return memoryview(self._memory).nbytes

    def check(self) -> None:
        """Raises Error, of code "io", when the file became shorter than what is mapped."""
        self._memory.check()

    def numpy(self) -> numpy.ndarray:
        """A read-only array of this memory. Raises Error: unsupported for bfloat16 and whatever else numpy lacks."""
        import numpy

        name = _OF_NUMPY.get(self.dtype)
        if name is None:
            raise failure("unsupported", f"numpy has no dtype {self.dtype}", key=self.key, path=self._path,
                          hint="take torch()")
        dtype = numpy.dtype(name)
        steps = tuple(step * dtype.itemsize for step in self.strides)
        if 0 in self.shape:
            return numpy.frombuffer(b"", dtype).reshape(self.shape)
        return numpy.ndarray(self.shape, dtype, buffer=self._memory, strides=steps)

    def torch(self) -> torch.Tensor:
        """A tensor of this memory, of any dtype that PyTorch has. PyTorch has no read-only tensors: to write into this
        one kills the process (SIGSEGV). Raises Error: unaligned where elements do not begin at a multiple of their size
        (`numpy()` takes those)."""
        import torch

        dtype = dtype_named(self.dtype, self.key)
        size = memoryview(self._memory).nbytes
        if size == 0:
            return torch.empty(self.shape, dtype=dtype)
        item = dtype.itemsize // 2 if dtype.is_complex else dtype.itemsize
        if self._memory.address % item:
            raise failure("unaligned", "its first byte lies where PyTorch cannot read its dtype", key=self.key,
                          path=self._path, expected=f"a multiple of {item} bytes",
                          found=f"{self._memory.address % item} beyond one", hint="take numpy(), or load it")
        # Not frombuffer of the memory itself: it warns of every read-only buffer. The array keeps the mapping.
        held = (ctypes.c_ubyte * size).from_address(self._memory.address)
        held._memory = self._memory  # type: ignore[attr-defined]
        flat = torch.frombuffer(held, dtype=torch.uint8)
        return torch.empty(0, dtype=dtype).set_(flat.untyped_storage(), 0, self.shape, self.strides)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> numpy.ndarray:
        """For numpy.asarray. Raises ValueError, as numpy has it, where copy=False and another dtype need a copy."""
        import numpy

        made = self.numpy()
        try:
            wanted = made.dtype if dtype is None else numpy.dtype(dtype)
        except Exception as cause:  # of whatever class stands for it
            raise wrong("dtype", "a dtype of numpy", dtype, self.key) from cause
        must_copy = copy is not None and flag("copy", copy)
        if copy is not None and not must_copy and wanted != made.dtype:
            raise ValueError(f"{self.key}: {wanted} needs a copy of {made.dtype}")
        try:
            return made.astype(wanted, copy=must_copy)
        except (TypeError, ValueError) as cause:
            raise failure("unsupported", f"numpy does not convert {made.dtype} to {wanted}", key=self.key,
                          path=self._path) from cause

    def __repr__(self) -> str:
        return f"<shardmesh.MappedTensor {self.key}: {self.dtype}{list(self.shape)}>"
