# SPDX-License-Identifier: Apache-2.0
"""SavePlanCache: the plan of a rank's latest save, for saves that repeat it."""
from __future__ import annotations

from . import _native


class SavePlanCache:
    """Keeps the plan of this rank's latest save, for `shardmesh.dcp.save`, `dcp.async_save`, and `Run`. The next save
    uses it, without descriptions and plans between ranks, if on every rank the group, the options, and the keys, shapes,
    dtypes, boxes, and sizes of objects are the same. Values may differ. Otherwise the ranks plan, and keep the new plan.

    Each rank has one of its own, and gives saves of different states a cache each. It takes about 600 bytes per chunk:
    of the checkpoint on rank 0, and of the rank's own chunks on another rank.
    """

    __slots__ = ("_native",)

    def __init__(self) -> None:
        self._native = _native.SavePlanCache.make()

    @property
    def reuses(self) -> int:
        """The number of saves that have used a kept plan."""
        return self._native.reuses

    def __repr__(self) -> str:
        return f"<shardmesh.SavePlanCache: {self.reuses} reuses>"
