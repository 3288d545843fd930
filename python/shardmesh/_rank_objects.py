# SPDX-License-Identifier: Apache-2.0
"""The values of a run's steps that belong to one rank, such as random states and the positions of data loaders. The
C++ half (modules/run/rank_objects) has the same keys."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, Union

from . import _arguments
from ._checkpoint import Checkpoint, open
from ._error import Error, failure

#: "refuse": the step is not loaded. "drop": no rank gets objects, and `ResumedRun.dropped` names them. A function gets
#: the objects of all ranks that saved the step, the rank, and the number of ranks; it returns this rank's objects.
WhenResized = Union[str, Callable[[list[dict[str, Any]], int, int], dict[str, Any]]]

_PREFIX = "rank_objects"
_WORLD_SIZE = "rank_objects_world_size"
_MOST_RANKS = 1_000_000
_PLAIN = (type(None), bool, int, float, str, bytes)


def with_rank_objects(state_dict: Any, own: Any, rank: int, ranks: int) -> Any:
    """Returns the state dict with the objects of this rank under keys of their own."""
    if own is not None and (not isinstance(own, Mapping) or not all(isinstance(name, str) and name for name in own)):
        raise _arguments.wrong("rank_objects", "a mapping from names to values", own)
    if not isinstance(state_dict, dict):  # dcp.save names the type of another state
        return state_dict
    for key in state_dict:  # also without objects: `resume` would take the entry for them
        if key in (_PREFIX, _WORLD_SIZE) or (isinstance(key, str) and key.startswith(f"{_PREFIX}.")):
            raise failure("duplicate_key", "the state dict has a key that is reserved for rank_objects", key=key,
                          hint="rename the entry")
    if not own:
        return state_dict
    return {**state_dict, _WORLD_SIZE: ranks,
            _PREFIX: {name: {str(rank): _stored(value)} for name, value in own.items()}}


def checked_rule(value: Any) -> WhenResized:
    if not callable(value) and not (isinstance(value, str) and value in ("refuse", "drop")):
        raise _arguments.wrong("when_resized", "'refuse', 'drop', or a function", value)
    return value


def rank_objects_of(path: str, rank: int, ranks: int, rule: WhenResized,
                    end: float | None) -> tuple[dict[str, Any], list[str]]:
    """Returns this rank's objects of a step, and the keys of dropped ones. end: see `_arguments.end_of`.

    Raises Error: invalid_argument if another number of ranks saved the step, and the rule refuses that.
    """
    checkpoint = open(path, within=_arguments.left_until(end))
    saved = _world_size(checkpoint, end)
    keys = _keys_of(checkpoint, saved)
    if not keys or saved == ranks:
        return {name: _load(checkpoint, key, end) for key, (name, of) in keys.items() if of == rank}, []
    if rule == "drop":
        return {}, sorted(keys)
    if rule == "refuse":
        raise failure("invalid_argument", "the step has objects of single ranks, and another number of ranks resumes",
                      key=min(keys), path=path, expected=f"{saved} ranks", found=f"{ranks} ranks",
                      hint="resume with as many ranks, or set when_resized to 'drop' or to a function")
    of_ranks: list[dict[str, Any]] = [{} for _ in range(saved)]
    for key, (name, of) in keys.items():
        of_ranks[of][name] = _load(checkpoint, key, end)
    return _converted(rule, of_ranks, rank, ranks), []


def _converted(rule: Any, of_ranks: list[dict[str, Any]], rank: int, ranks: int) -> dict[str, Any]:
    try:
        made = rule(of_ranks, rank, ranks)
    except Exception as cause:  # not an error of the step, whatever its type
        raise failure("invalid_argument", f"the function when_resized failed: {cause!r}") from cause
    if not isinstance(made, Mapping):
        raise failure("invalid_argument", "the function when_resized returns no mapping", expected="a dict",
                      found=_arguments.shown(made))
    return dict(made)


def _stored(value: Any) -> Any:
    """Wraps a value that is not plain, so that it is one object. PyTorch would make an entry of each value of a dict,
    and C++ gives only objects back."""
    return value if type(value) in _PLAIN else SimpleNamespace(value=value)


def _world_size(checkpoint: Checkpoint, end: float | None) -> int:
    if _WORLD_SIZE not in checkpoint:
        return 0
    try:
        saved = checkpoint.load(_WORLD_SIZE, within=_arguments.left_until(end))
    except Error as problem:
        if problem.code != "unsupported":
            raise
        saved = problem.message  # more than plain data, or damaged
    if type(saved) is not int or not 1 <= saved <= _MOST_RANKS:
        raise failure("bad_format", "is not a valid number of ranks", key=_WORLD_SIZE, path=checkpoint.path,
                      expected=f"1 to {_MOST_RANKS}", found=_arguments.shown(saved))
    return saved


def _keys_of(checkpoint: Checkpoint, saved: int) -> dict[str, tuple[str, int]]:
    """Returns the name and the rank of each key. A name may contain dots."""
    found = {}
    for key in checkpoint if saved else ():
        head, _, rank = key.rpartition(".")
        prefix, _, name = head.partition(".")
        if prefix != _PREFIX or not name or not (rank.isascii() and rank.isdigit()):
            continue
        if int(rank) >= saved:
            raise failure("bad_format", "belongs to a rank that did not save the step", key=key, path=checkpoint.path,
                          expected=f"a rank below {saved}", found=rank)
        found[key] = (name, int(rank))
    return found


def _load(checkpoint: Checkpoint, key: str, end: float | None) -> Any:
    # As dcp.load loads the objects of the state.
    value = checkpoint.load(key, weights_only=False, within=_arguments.left_until(end))
    return value.value if type(value) is SimpleNamespace else value
