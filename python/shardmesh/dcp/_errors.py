# SPDX-License-Identifier: Apache-2.0
"""One error on all ranks, which callers of shardmesh and callers of PyTorch can catch."""
from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator
from typing import Any

import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException

from .._error import Error, failure


class CheckpointError(Error, CheckpointException):
    """A shardmesh.Error of a collective load or save that is also PyTorch's CheckpointException: `failures` has every
    rank's error."""

    def __init__(self, problem: Error, failures: dict[int, Any]) -> None:
        Error.__init__(self, problem.code, problem.message)
        self.args = problem.args  # the same line
        self.__dict__.update(problem.__dict__)
        self._failures = failures

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""

    @property
    def failures(self) -> dict[int, Any]:
        """(exception, stack) for each rank that failed."""
        return self._failures


@contextlib.contextmanager
def one_error(step: str, process_group: dist.ProcessGroup | None, no_dist: bool) -> Iterator[None]:
    """PyTorch reports every rank's failure to every rank. Raises the first of them; its `others` holds those of other
    ranks that differ."""
    try:
        yield
    except CheckpointException as failed:
        if isinstance(failed, CheckpointError):
            raise
        of_ranks = {rank: _as_ours(wrapped[0]) for rank, wrapped in sorted(failed.failures.items())}
        ours = [problem for problem in of_ranks.values() if isinstance(problem, Error)]
        if not ours:  # from a callback or a planner
            raise next(iter(of_ranks.values())) from failed
        first, others = ours[0], [problem for problem in ours[1:] if str(problem) != str(ours[0])]
        first.others = (*first.others, *others)
        raise CheckpointError(first, failed.failures) from failed
    except Error as problem:  # in this rank's arguments, before it notified the others
        raise CheckpointError(problem, {_rank(process_group, no_dist): (problem, traceback.extract_tb(problem.__traceback__))}
                              ) from problem


def _rank(process_group: dist.ProcessGroup | None, no_dist: bool) -> int:
    if no_dist or not dist.is_available() or not dist.is_initialized():
        return 0
    return dist.get_rank(process_group)


def _as_ours(problem: BaseException) -> BaseException:
    """Converts the exceptions that PyTorch's flattening raises for a state dict that cannot be saved."""
    if isinstance(problem, RecursionError):
        return failure("invalid_argument", "a container of the state dict holds itself, or is nested too deeply")
    if isinstance(problem, UnicodeEncodeError):
        return failure("invalid_argument", "a key of the state dict is not valid Unicode", found=ascii(problem.object)[:100])
    return problem
