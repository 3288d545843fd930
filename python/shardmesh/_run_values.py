# SPDX-License-Identifier: Apache-2.0
"""The values that shardmesh.Run takes and returns: rules, steps, and reports."""
from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from . import _arguments
from ._error import Error

#: A time, in seconds since 1970, that the clock of the C++ functions can still represent.
_LAST_SECOND = 9_200_000_000


@dataclass(frozen=True)
class KeepRules:
    """The rules that keep steps. A step that one of them keeps is kept. Without a rule, every step is kept."""

    #: the newest good steps
    last: int = 0
    #: each step whose number is a multiple of this one
    every: int = 0
    #: the steps with the best metric, of those that have one
    best: int = 0
    highest_is_best: bool = False
    #: each step that was saved at this time or later, in seconds since 1970
    since: float | None = None


@dataclass(frozen=True)
class RunStep:
    """One step of a run. It may be damaged."""

    step: int
    path: str
    #: when it was saved, in seconds since 1970
    saved: float
    #: the metric that its save passed
    metric: float | None
    pinned: bool


@dataclass(frozen=True)
class ResumedRun:
    """The step from which a run resumes."""

    #: None: the run has no step yet
    step: int | None
    #: the step's folder
    path: str = ""
    #: the errors of newer steps, which were skipped; newest first
    skipped: list[Error] = field(default_factory=list)
    #: the objects of this rank, as its save passed them
    rank_objects: dict[str, Any] = field(default_factory=dict)
    #: the keys of the objects that `when_resized="drop"` left out
    dropped: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class PruneReport:
    """The steps that a prune deleted and kept, or would delete and keep."""

    #: (step, reasons to keep it), ascending
    kept: list[tuple[RunStep, list[str]]]
    deleted: list[RunStep]
    #: the number of deleted leftovers of killed saves
    leftovers: int
    #: the bytes of the deleted steps and leftovers
    bytes: int
    #: the steps and leftovers that could not be deleted, with the reasons
    problems: list[Error]
    #: the reasons why nothing was deleted
    notes: list[str]


def rules_of(keep: Any) -> dict[str, Any]:
    """Converts the rules to arguments of the C++ functions."""
    if not isinstance(keep, KeepRules):
        raise _arguments.wrong("keep", "KeepRules", keep)
    since = keep.since
    if since is not None:  # whole seconds, as steps record them
        since = math.floor(min(_arguments.fraction("since", since), _LAST_SECOND))
    return {**{name: _arguments.number(name, getattr(keep, name)) for name in ("last", "every", "best")},
            "highest_is_best": _arguments.flag("highest_is_best", keep.highest_is_best), "since": since}
