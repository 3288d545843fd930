# SPDX-License-Identifier: Apache-2.0
"""PyTorch's tensors as the C++ half takes them: an address, a dtype's name, sizes, and strides. torch is imported only
when a tensor is needed, so descriptions, checks, and conversions work without it."""
from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ParamSpec, TypeVar, Union

from . import _native
from ._error import failure

if TYPE_CHECKING:
    import torch

P = ParamSpec("P")
R = TypeVar("R")
Memory = tuple[int, str, tuple[int, ...], tuple[int, ...]]
Where = tuple[Sequence[int], Sequence[int]]
#: A key, a box of its tensor, memory, and the memory to which it is copied if that differs.
Request = tuple[str, Where, Memory, Union[Memory, None]]


def dtype_named(name: str, key: str = "") -> torch.dtype:
    import torch

    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise failure("unsupported", f"PyTorch {torch.__version__} has no dtype {name}", key=key)
    return found


@functools.lru_cache(maxsize=None)
def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def kind_that_has_no_memory(tensor: torch.Tensor) -> str:
    """Describes a tensor that is not plain strided memory; "" for a plain one."""
    import torch

    if is_uninitialized(tensor):
        return "an uninitialized parameter of a lazy module, which has no shape yet"
    if tensor.device.type == "meta":
        return "a meta tensor, which has no memory"
    if tensor.is_nested:
        return "a nested tensor"
    if tensor.layout != torch.strided:
        return f"a tensor of layout {tensor.layout}"
    if tensor.is_quantized:
        return "a quantized tensor (save its int_repr(), scale, and zero point, or let PyTorch's FileSystemWriter write it)"
    if type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        return f"a tensor subclass with memory of its own ({type(tensor).__module__}.{type(tensor).__qualname__})"
    if tensor._is_zerotensor():
        return "a tensor of zeros without memory (clone() gives it memory)"
    try:
        held, needed = tensor.untyped_storage().nbytes(), _bytes_reached(tensor)
        address = tensor.data_ptr()
    except Exception as cause:  # from tensors that PyTorch's transformations wrap
        return f"a tensor whose memory PyTorch does not show ({type(cause).__name__}: {cause})"
    if held < needed:  # freed or shrunk by resize_, as FSDP does: PyTorch's own copies would crash
        return f"a tensor that needs {needed} bytes of a storage that has {held}"
    return "a tensor without memory" if needed and not address else ""


def is_uninitialized(value: object) -> bool:
    """Whether the value is a parameter or buffer of a lazy module that has seen no input. PyTorch raises ValueError or
    RuntimeError for almost every operation on it."""
    from torch.nn.parameter import is_lazy

    return is_lazy(value)


def refuse_without_memory(tensor: torch.Tensor, key: str, use: str) -> None:
    """Checks a tensor before its memory is used. use: "read" or "fill". Raises Error, of code "unsupported"."""
    kind = kind_that_has_no_memory(tensor)
    if kind:
        raise failure("unsupported", f"has no plain memory to {use}: it is {kind}", key=key)


def _bytes_reached(tensor: torch.Tensor) -> int:
    """Returns the bytes from the beginning of the storage to the end of the tensor's last element."""
    if tensor.numel() == 0:
        return 0
    if tensor.is_contiguous():
        last = tensor.numel() - 1
    else:
        last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    return (tensor.storage_offset() + last + 1) * tensor.itemsize


def _overlaps(tensor: torch.Tensor) -> bool:
    if tensor.numel() < 2 or tensor.is_contiguous():
        return False
    steps = sorted((stride, size) for size, stride in zip(tensor.shape, tensor.stride()) if size > 1)
    reached = 0  # by the dimensions of smaller strides
    for stride, size in steps:
        if stride <= reached:
            return stride == 0 or len(steps) != 2 or _meet(*steps)
        reached += (size - 1) * stride
    return False


def _meet(one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Whether steps along two dimensions, each (stride, size), lead to the same element."""
    (a, m), (b, n) = one, other
    common = math.gcd(a, b)
    return b // common < m and a // common < n


def _calls_torch(function: Callable[P, R]) -> Callable[P, R]:
    """Wraps a function that calls PyTorch, which releases the interpreter's lock. A program that ended while a daemon
    thread is in such a call would abort, so its end waits for them."""
    @functools.wraps(function)
    def call(*arguments: P.args, **options: P.kwargs) -> R:
        whole = _native.ForeignCall()
        whole.begin()
        try:
            return function(*arguments, **options)
        finally:
            whole.end()
    return call


@_calls_torch
def readable(tensor: torch.Tensor, key: str) -> torch.Tensor:
    """Returns the tensor's values in plain host memory, without a copy if they are there already."""
    refuse_without_memory(tensor, key, "read")
    return tensor.detach().resolve_conj().resolve_neg().cpu()


def memory_of(tensor: torch.Tensor) -> Memory:
    """Returns the memory of a tensor from `readable` or `Destination`. The caller keeps the tensor alive."""
    return tensor.data_ptr(), name_of(tensor.dtype), tuple(tensor.shape), tensor.stride()


@_calls_torch
def fresh(shape: Sequence[int], dtype: torch.dtype, device: torch.device | str = "cpu", key: str = "") -> torch.Tensor:
    """Returns an uninitialized tensor to fill. A large one on the host takes few page faults. Raises Error: no_memory;
    overflow if PyTorch cannot count its bytes or strides."""
    import torch

    try:
        made = torch.empty(shape, dtype=dtype, device=device)
    except (RuntimeError, MemoryError) as cause:
        refuse_overflow(shape, dtype.itemsize, key)
        if torch.device(device).type != "cpu" and not isinstance(cause, torch.OutOfMemoryError):
            raise
        raise failure("no_memory", "there is no memory for the tensor", key=key,
                      expected=f"{math.prod(shape) * dtype.itemsize} bytes",
                      hint="load a box of it, or load it into tensors of several ranks") from cause
    if made.device.type == "cpu" and made.nbytes >= 2 << 20:
        _native.prefer_large_pages(made.data_ptr(), made.nbytes)
    return made


def refuse_overflow(shape: Sequence[int], item_bytes: int, key: str, path: str = "") -> None:
    """Raises Error, of code "overflow", if the bytes or the strides of such a tensor exceed 64 bits."""
    if math.prod(max(1, size) for size in shape) * item_bytes >= 2**63:
        raise failure("overflow", "its strides or its bytes do not fit in 64 bits", key=key, path=path,
                      found=str(list(shape)))


class Destination:
    """A tensor to load into. Plain host memory is filled in place, anything else through a copy."""

    @_calls_torch
    def __init__(self, tensor: torch.Tensor, key: str) -> None:
        refuse_without_memory(tensor, key, "fill")
        if _overlaps(tensor):
            raise failure("unsupported", "cannot be filled: several of its elements share memory", key=key,
                          hint="load into a contiguous tensor and copy it: expand shares memory between elements")
        self.key = key
        self.tensor = tensor.detach()
        is_plain = tensor.device.type == "cpu" and not tensor.is_conj() and not tensor.is_neg()
        self._filled = self.tensor if is_plain else fresh(tensor.shape, tensor.dtype, key=key)
        self.memory = memory_of(self._filled)
        self._copied_to = None if is_plain else memory_of(self.tensor)

    def request(self, where: Where) -> Request:
        """Returns the C++ half's request for that box of the key."""
        return self.key, where, self.memory, self._copied_to

    @_calls_torch
    def finish(self) -> None:
        """Call this after the memory was filled, so that autograd notices."""
        import torch

        if self._filled is not self.tensor:
            self.tensor.copy_(self._filled)
        elif not self.tensor.is_inference():
            torch.autograd.graph.increment_version(self.tensor)
