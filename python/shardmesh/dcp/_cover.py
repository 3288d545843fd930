# SPDX-License-Identifier: Apache-2.0
"""Tests whether boxes cover a box, each element exactly once."""
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
    """Returns whether the boxes, each (offsets, sizes), cover every element of the whole box exactly once. The time is
    proportional to the number of boxes.

    A box is the product, over its dimensions, of (the mark of its begin - the mark of its end). The sum of these
    products is a polynomial in the marks. It equals the polynomial of the whole box only for an exact cover. An invalid
    cover passes with a probability below 2**-100.
    """
    marks = [_Marks() for _ in whole[0]]

    def product(box: BoxLike) -> int:
        made = 1
        for of_dimension, begin, size in zip(marks, *box):
            made = made * (of_dimension[begin] - of_dimension[begin + size]) % _PRIME
        return made

    return sum(map(product, boxes)) % _PRIME == product(whole)
