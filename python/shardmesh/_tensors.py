# SPDX-License-Identifier: Apache-2.0
"""PyTorch's tensors as the C++ half takes them: an address, a dtype's name, sizes and strides. torch is imported when a
tensor is asked for, so that descriptions, checks and conversions do without it."""
from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from . import _native
from ._error import failure
from ._shared_memory import is_same_memory, overlapping_pairs

if TYPE_CHECKING:
    import torch

P = ParamSpec("P")
R = TypeVar("R")
Memory = tuple[int, str, tuple[int, ...], tuple[int, ...]]


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
    """What the tensor is, when it is not plain strided memory; else nothing."""
    import torch

    if tensor.device.type == "meta":
        return "a meta tensor, which has no memory"
    if tensor.is_nested:
        return "a nested tensor"
    if tensor.layout != torch.strided:
        return f"a tensor of layout {tensor.layout}"
    if tensor.is_quantized:
        return "a quantized tensor (save its int_repr(), scale and zero point, or let PyTorch's FileSystemWriter write it)"
    if type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        return f"a tensor subclass with memory of its own ({type(tensor).__module__}.{type(tensor).__qualname__})"
    held, needed = tensor.untyped_storage().nbytes(), _bytes_reached(tensor)
    if held < needed:  # freed or made smaller by resize_, as FSDP does: PyTorch's own copies would crash
        return f"a tensor that needs {needed} bytes of a storage that has {held}"
    return ""


def _bytes_reached(tensor: torch.Tensor) -> int:
    """From the beginning of the storage to the end of the tensor's last element."""
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
    reached = 0  # by the dimensions of smaller strides
    for stride, size in sorted((stride, size) for size, stride in zip(tensor.shape, tensor.stride()) if size > 1):
        if stride <= reached:
            return True
        reached += (size - 1) * stride
    return False


def _calls_torch(function: Callable[P, R]) -> Callable[P, R]:
    """PyTorch's functions let go of the interpreter's lock. A program that ends while a daemon thread is in one would
    abort: its end waits for these."""
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
    """The tensor's values in plain memory of the host, without a copy where they are there already."""
    kind = kind_that_has_no_memory(tensor)
    if kind:
        raise failure("unsupported", f"has no plain memory to read: it is {kind}", key=key)
    return tensor.detach().resolve_conj().resolve_neg().cpu()


def memory_of(tensor: torch.Tensor) -> Memory:
    """Of a tensor that `readable` gave, or that `Destination` made. The caller keeps the tensor."""
    return tensor.data_ptr(), name_of(tensor.dtype), tuple(tensor.shape), tensor.stride()


@_calls_torch
def fresh(shape: Sequence[int], dtype: torch.dtype, device: torch.device | str = "cpu") -> torch.Tensor:
    """A tensor that is about to be filled, uninitialized: of the host, a large one takes few page faults."""
    import torch

    made = torch.empty(shape, dtype=dtype, device=device)
    if made.device.type == "cpu" and made.nbytes >= 2 << 20:
        _native.prefer_large_pages(made.data_ptr(), made.nbytes)
    return made


def _has_same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    import torch

    def raw(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.contiguous().reshape(-1).view(torch.uint8)

    return torch.equal(raw(a.cpu()), raw(b.cpu()))


def check_apart(destinations: Sequence[Destination], places: Sequence[object], *, of_one_key: bool = True) -> list[int]:
    """Raises Error, of code "overlap", when two destinations fill one byte. The same memory under several keys (tied
    weights) is allowed. places: of each, the box that is read. of_one_key: also look at destinations of equal keys.

    Returns the numbers of destinations that repeat one before them; they need not be read.
    """
    repeated = []
    for first, second in overlapping_pairs([to.tensor for to in destinations]):
        one, other = destinations[first], destinations[second]
        is_same = is_same_memory(one.tensor, other.tensor)
        if one.key != other.key:
            if not is_same:
                raise failure("overlap", f"fills a part of the memory that {one.key} fills", key=other.key,
                              hint="give each its own memory")
            other.be_same_as(one)
        elif of_one_key:
            if not is_same or places[first] != places[second]:
                raise failure("overlap", "fills one memory with two boxes", key=other.key, hint="give each its own memory")
            repeated.append(second)
    return repeated


class Destination:
    """A tensor that is loaded into: plain memory of the host is filled in place, anything else by way of a copy."""

    @_calls_torch
    def __init__(self, tensor: torch.Tensor, key: str) -> None:
        kind = kind_that_has_no_memory(tensor)
        if kind:
            raise failure("unsupported", f"has no plain memory to fill: it is {kind}", key=key)
        if _overlaps(tensor):
            raise failure("unsupported", "cannot be filled: several of its elements are one place in memory", key=key,
                          hint="load into a tensor of its own and copy it (expand shares memory)")
        self.key = key
        self.tensor = tensor.detach()
        is_plain = tensor.device.type == "cpu" and not tensor.is_conj() and not tensor.is_neg()
        self._filled = self.tensor if is_plain else fresh(tensor.shape, tensor.dtype)
        self.memory = memory_of(self._filled)
        self._is_finished = False
        self._same: list[Destination] = []  # the same memory, under other keys

    def be_same_as(self, other: Destination) -> None:
        """Another key of the same memory, a tied weight: filled apart, and compared when both are there."""
        self._filled = fresh(self.tensor.shape, self.tensor.dtype)
        self.memory = memory_of(self._filled)
        self._same.append(other)
        other._same.append(self)

    @_calls_torch
    def finish(self) -> None:
        """Call it when the memory was filled: autograd has to know. Raises Error, of code "disagreement", when another
        key gave the same memory other values."""
        import torch

        self._is_finished = True
        for other in self._same:
            if other._is_finished and not _has_same_bits(self._filled, other._filled):
                raise failure("disagreement", f"fills the memory that {other.key} fills, with other values", key=self.key,
                              hint="load tied tensors from a checkpoint in which they are equal, or into tensors of their own")
        if self._filled is not self.tensor:
            self.tensor.copy_(self._filled)
        elif not self.tensor.is_inference():
            torch.autograd.graph.increment_version(self.tensor)
