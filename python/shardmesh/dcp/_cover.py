# SPDX-License-Identifier: Apache-2.0
"""Whether boxes cover a box, each element once."""
from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence

BoxLike = tuple[Sequence[int], Sequence[int]]

_PRIME = 2**127 - 1


class _Marks(dict):
    """A random number for each coordinate of one dimension."""

    def __missing__(self, coordinate: int) -> int:
        self[coordinate] = made = secrets.randbelow(_PRIME)
        return made


def covers_once(boxes: Iterable[BoxLike], whole: BoxLike) -> bool:
    """Whether the boxes, each (offsets, sizes), cover the whole box, and no element twice. Takes time in proportion to
    the number of boxes.

    A box is the product, over its dimensions, of (the mark of its begin - the mark of its end). The sum of these
    products is a polynomial in the marks, which is that of the whole box only for an exact cover. Any other cover passes
    with a probability below 2**-100.
    """
    marks = [_Marks() for _ in whole[0]]

    def product(box: BoxLike) -> int:
        made = 1
        for of_dimension, begin, size in zip(marks, *box):
            made = made * (of_dimension[begin] - of_dimension[begin + size]) % _PRIME
        return made

    return sum(map(product, boxes)) % _PRIME == product(whole)
