# SPDX-License-Identifier: Apache-2.0
"""Which tensors of one load are the same memory. Not here: memory between processes (_ranks.py)."""
from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

#: Steps of a search after which two tensors count as apart. Views of one tensor take a few.
_MOST_STEPS = 100_000


def overlapping_pairs(tensors: Sequence[torch.Tensor]) -> Iterator[tuple[int, int]]:
    """Numbers (first, second), first < second, of tensors that share a byte. O(n log n) where no spans overlap."""
    spans = []
    for number, tensor in enumerate(tensors):
        begin, size = tensor.data_ptr(), tensor.nbytes
        if not tensor.is_contiguous():
            size = (1 + sum((one - 1) * step for one, step in zip(tensor.shape, tensor.stride()))) * tensor.itemsize
        spans.append((begin, begin + size, number))
    spans.sort()
    reached = 0
    for begin, end, _ in spans:  # most loads have no spans that meet
        if begin < reached:
            break
        reached = end
    else:
        return
    active: list[tuple[int, int, int]] = []
    for span in spans:
        active = [one for one in active if one[1] > span[0]]
        for one in active:
            first, second = sorted((one[2], span[2]))
            if share_a_byte(tensors[first], tensors[second]):
                yield first, second
        active.append(span)


def is_same_memory(a: torch.Tensor, b: torch.Tensor) -> bool:
    """The same elements, at the same indices."""
    def steps(tensor: torch.Tensor) -> list[int]:
        return [stride for size, stride in zip(tensor.shape, tensor.stride()) if size > 1]

    return a.data_ptr() == b.data_ptr() and a.dtype == b.dtype and a.shape == b.shape and steps(a) == steps(b)


def share_a_byte(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Exact for views of strided memory, as numpy.shares_memory is: is there a byte that both reach?"""
    # begin_a + sum(stride * x) + byte == begin_b + sum(stride * y) + byte, every term of b turned round: a sum of
    # non-negative terms that has to be `wanted`.
    if not a.numel() or not b.numel() or a.device != b.device:
        return False
    wanted = b.data_ptr() - a.data_ptr()
    terms: dict[int, int] = {}
    for tensor, is_turned in ((a, False), (b, True)):
        for step, most in [(stride * tensor.itemsize, size - 1) for size, stride in zip(tensor.shape, tensor.stride())] + \
                          [(1, tensor.itemsize - 1)]:
            if most > 0 and step > 0:
                terms[step] = terms.get(step, 0) + most
                wanted += step * most if is_turned else 0
    return _is_sum(sorted(terms.items(), reverse=True), wanted, [_MOST_STEPS])


def _is_sum(terms: list[tuple[int, int]], wanted: int, left: list[int]) -> bool:
    """Whether each step, taken from none to its most times, can add up to what is wanted."""
    if wanted < 0:
        return False
    if not terms:
        return wanted == 0
    if wanted % math.gcd(*(step for step, _ in terms)):
        return False
    (step, most), rest = terms[0], terms[1:]
    reach = sum(one * times for one, times in rest)
    least = max(0, -((reach - wanted) // step))
    for times in range(min(most, wanted // step), least - 1, -1):
        left[0] -= 1
        if left[0] < 0:
            return False
        if _is_sum(rest, wanted - times * step, left):
            return True
    return False
