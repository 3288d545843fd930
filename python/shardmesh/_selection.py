# SPDX-License-Identifier: Apache-2.0
"""Selection: the keys that take part in save, diff, convert, and reshard."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from . import _arguments
from ._error import failure


@dataclass(frozen=True)
class Selection:
    """The keys that take part, and their new names and dtypes. Expressions are RE2's and match whole keys.

    rename: "RE=REPLACEMENT", in order.
    cast: "DTYPE" or "RE=DTYPE" for tensors of DTYPE's kind (floating, integer, complex; FP8 only by a pattern),
    "FROM:DTYPE" or "RE=FROM:DTYPE" for those of the dtype FROM.
    """

    only: Sequence[str] = ()
    skip: Sequence[str] = ()
    no_optimizer: bool = False
    strip_prefix: str = ""
    rename: Sequence[str] = ()
    cast: Sequence[str] = ()
    #: a rule may match nothing
    allow_unused: bool = False
    #: skip, strip_prefix, and rename rules for a parameter also apply to its optimizer state and its name in
    #: param_groups
    optimizer_follows: bool = False
    #: allows casts that lose integer values or change the kind of numbers, instead of refusing them
    allow_narrowing: bool = False

    def options(self) -> dict:
        made = dict(self.__dict__)
        for name in ("only", "skip", "rename", "cast"):
            made[name] = _arguments.texts(name, made[name])
        _arguments.text("strip_prefix", made["strip_prefix"])
        for name in ("no_optimizer", "allow_unused", "optimizer_follows", "allow_narrowing"):
            made[name] = _arguments.flag(name, made[name])
        made["state_follows"] = made.pop("optimizer_follows")  # in `reshard`, optimizer_follows means placements
        return made


def options_of(selection: Selection) -> dict:
    """Checks the argument `selection`, and returns the options of the C++ half."""
    if not isinstance(selection, Selection):
        raise failure("invalid_argument", "the argument selection is invalid", expected="a Selection",
                      found=type(selection).__name__)
    return selection.options()
