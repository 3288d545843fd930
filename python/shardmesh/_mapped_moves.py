# SPDX-License-Identifier: Apache-2.0
"""redistribute of state dicts: the tensors of one, which ranks hold under the names of one convention, fill those of
another."""
from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Optional

import torch.distributed as dist

from . import _native
from ._progress import Progress, reporting
from ._rank_sides import Side, entries_of, side_of
from ._ranks import members
from ._tensors import Destination, memory_of, name_of, readable


@dataclass(frozen=True)
class RedistributeReport:
    """The work of this rank in a `redistribute` of state dicts."""

    sent_bytes: int
    received_bytes: int
    #: more than one if the limit for messages required it
    rounds: int
    #: memory for messages and sums
    scratch_bytes: int


def move_state(state: Mapping[str, Any], into: Mapping[str, Any], mapping: dict[str, Any],
               process_group: Optional[dist.ProcessGroup], limits: dict[str, Any],
               progress: Progress) -> RedistributeReport:
    """Fills the tensors of `into`. The arguments are checked; `mapping` is from `mapping_options`."""
    ranks = dist.get_process_group_ranks(process_group) if process_group is not None else range(_world_size())
    group = members(set(ranks), process_group, limits["seconds"])
    with contextlib.ExitStack() as shown:
        with group.telling_others():
            chosen = _native.ChosenMapping.make(mapping)
            sources = [(key, side_of(value, group, key)) for key, value in entries_of(state)]
            targets = [(key, side_of(value, group, key)) for key, value in entries_of(into)]
            read = [[readable(one, key) for one in side.local] for key, side in sources]
            filled = [[Destination(one, key) for one in side.local] for key, side in targets]
            total = sum(one.nbytes for _, side in targets for one in side.local)
            given_from = [_named(key, side, [memory_of(one) for one in local])
                          for (key, side), local in zip(sources, read)]
            given_to = [_named(key, side, [one.memory for one in local]) for (key, side), local in zip(targets, filled)]
            report = shown.enter_context(reporting(progress, total, "redistribute"))
        with group.moving():
            done = group.native.redistribute_mapped(chosen, given_from, given_to, {**limits, "report": report})
    for local in filled:
        for one in local:
            one.finish()
    return RedistributeReport(*done)


def _named(key: str, side: Side, memories: list) -> tuple:
    return key, side.where, name_of(side.dtype), memories


def _world_size() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 0
