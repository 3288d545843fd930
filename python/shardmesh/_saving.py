# SPDX-License-Identifier: Apache-2.0
"""save: writes a state dict of one process as a new checkpoint. Ranks save together with shardmesh.dcp."""
from __future__ import annotations

import io
import os
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from . import _arguments, _native
from ._conventions import mapping_options
from ._error import failure
from ._parents import in_new_parents
from ._progress import Progress, reporting
from ._selection import Selection, options_of
from ._tensors import is_uninitialized, memory_of, name_of, readable, refuse_without_memory

#: Hugging Face's own default.
MAX_SHARD_BYTES = 5_000_000_000


@dataclass(frozen=True)
class SaveReport:
    """The counts and notes of a save."""

    tensors: int
    bytes: int
    objects: int
    files: int
    #: left out, as the caller allowed, because the destination cannot hold them
    skipped_tensors: int = 0
    skipped_objects: int = 0
    #: by the selection
    excluded: int = 0
    #: for the user: replicated entries, leftovers of killed runs
    notes: list[str] = field(default_factory=list)
    #: the part of `bytes` that earlier checkpoints hold (`save` with `previous`)
    referred_bytes: int = 0

    @property
    def written_bytes(self) -> int:
        """The part of `bytes` that this save wrote."""
        return self.bytes - self.referred_bytes


def save(state_dict: Mapping[str, Any], path: str | os.PathLike[str], format: str = "dcp", *,
         selection: Selection = Selection(), overwrite: bool = False, max_shard_bytes: int = MAX_SHARD_BYTES,
         skip_objects: bool = False, payload: str = "torch", item: str = "", threads: int = 0, memory_bytes: int = 0,
         progress: Progress = None, previous: str | os.PathLike[str] | None = None,
         map: str | os.PathLike[str] | None = None, config: str | os.PathLike[str] | Mapping[str, Any] | None = None,
         sizes: Mapping[str, int] | None = None, map_inverse: bool = False,
         within: float | None = None) -> SaveReport:
    """Writes a state dict as a new checkpoint, whole or not at all. Nested dicts are flattened as PyTorch flattens
    them. Modules and optimizers (Stateful) in it are saved as their state_dict(). Parent folders of the path are
    created.

    format: "dcp" (a folder that torch.distributed.checkpoint loads), "safetensors" (a file), "hf" (a Hugging Face
    folder), "pt" (a file that torch.load reads), "torch-checkpointing" (a folder of that package), "gguf" (a file of
    llama.cpp's format), or "npz" (an archive of NumPy). "pt" and "torch-checkpointing" are nested again, so
    their keys must be text ("pt": or integers).
    selection: the entries to save, and their new names and dtypes. An entry with a new name is at the top level. Values
    that are left out may be of any kind.
    skip_objects: save the tensors only.
    payload: for torch-checkpointing; "safetensors" writes items that hold only tensors as safetensors files.
    item: for torch-checkpointing; the item for all entries. By default the outermost names are the items, with a file
    each.
    overwrite: replace an existing checkpoint, once the new one is on the disk.
    memory_bytes: for staging; 0: the default.
    previous: for "dcp"; an earlier checkpoint of shardmesh in the same parent folder. Tensors that have not changed
    since are not written again: the new checkpoint refers to the old files, which must be kept.
    map, config, sizes, map_inverse: save under another naming convention, as in `open`. The state has no configuration
    beside it, so pass `config` or `sizes`. The selection then applies to the new names.
    within: as in `open`.

    Raises Error: destination_exists; unsupported for tensors without plain memory (sparse, quantized, meta,
    subclasses), for DTensors and ShardedTensors, and for anything that the format cannot hold.
    """
    options = {"end": _arguments.end_of(within),
               "format": _arguments.text("format", format), "overwrite": _arguments.flag("overwrite", overwrite),
               "max_shard_bytes": _arguments.number("max_shard_bytes", max_shard_bytes, 1),
               "payload": _arguments.text("payload", payload), "item": _arguments.text("item", item),
               "threads": _arguments.threads(threads), "memory_bytes": _arguments.number("memory_bytes", memory_bytes),
               "save_id": str(uuid.uuid4()), "previous": "" if previous is None else _arguments.path(previous)}
    chosen = options_of(selection)
    mapping = mapping_options(map, config, sizes, map_inverse)
    is_mapped = mapping["map"] is not None
    if is_mapped and previous is not None:
        raise failure("invalid_argument", "a save with a mapping writes all tensors",
                      hint="pass previous or map, not both")
    tensors_only = _arguments.flag("skip_objects", skip_objects)
    path = _arguments.destination(path)
    _refuse_unused(path, options)
    before = options_of(Selection()) if is_mapped else chosen
    entries, excluded, notes = _selected(flattened(state_dict, format), before)
    tensors, objects, kept, skipped = [], [], [], 0
    for key, where, value, dtype in entries:
        if dtype is None and tensors_only:
            skipped += 1
            continue
        plain = _plain(value, key)
        if plain is None:
            refuse_inside(value, key)
            objects.append((key, where, archive_of(value, key)))
            continue
        kept.append(plain)
        tensors.append((key, where, memory_of(plain), value.requires_grad, dtype))
    total = sum(tensor.nbytes for tensor in kept)
    with reporting(progress, total, "save") as report:
        def write() -> dict[str, Any]:
            if not is_mapped:
                return _native.save(path, tensors, objects, {**options, "report": report})
            given = {**options, **chosen, **mapping, "skip_objects": tensors_only, "report": report}
            return _native.save_mapped(path, tensors, objects, given)

        made, _ = in_new_parents(path, write)
    made["notes"] = [*notes, *made["notes"]]
    made["excluded"] += excluded
    made["skipped_objects"] += skipped
    return SaveReport(**made)


def _refuse_unused(path: str, options: Mapping[str, Any]) -> None:
    """Refuses options that the format does not use, as convert does."""
    for formats, names, used in (
            ("hf", "max_shard_bytes applies", options["max_shard_bytes"] != MAX_SHARD_BYTES),
            ("torch-checkpointing", "item and payload apply", bool(options["item"]) or options["payload"] != "torch")):
        if used and options["format"] != formats:
            raise failure("invalid_argument", f"{names} only to {formats}", path=path, found=options["format"],
                          hint="leave it out")


def _selected(entries: list[tuple[str, tuple, Any]],
              selection: dict) -> tuple[list[tuple[str, tuple, Any, str | None]], int, list[str]]:
    """Returns (key, path, value, name of the dtype to write; None for objects) of each entry that the selection keeps,
    the number of the others, and notes. No value that is left out is looked into."""
    import torch

    dtypes = [name_of(value.dtype) if isinstance(value, torch.Tensor) else None for _, _, value in entries]
    if not any(selection[rules] for rules in ("only", "skip", "no_optimizer", "strip_prefix", "rename", "cast")):
        return [(*entry, dtype) for entry, dtype in zip(entries, dtypes)], 0, []
    texts_in = _texts_in if selection["state_follows"] else lambda value: []
    chosen = _native.select([(key, dtype, texts_in(value)) for (key, _, value), dtype in zip(entries, dtypes)], selection)
    kept = []
    for index, key, dtype, texts in chosen["kept"]:
        old, where, value = entries[index]
        if texts is not None:
            value = _with_texts(value, texts)
        kept.append((key, where if key == old else (key,), value, None if dtypes[index] is None else dtype))
    return kept, chosen["excluded"], chosen["notes"]


def _texts_in(value: Any) -> list[str]:
    """Returns the texts in a list, which may name the parameters of an optimizer."""
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def _with_texts(value: list, texts: list[str | None]) -> list:
    """Returns a list with other texts in their order; None leaves one out."""
    new = iter(texts)
    made = [next(new) if isinstance(one, str) else one for one in value]
    return [one for one, old in zip(made, value) if one is not None or not isinstance(old, str)]


def flattened(state_dict: Mapping[str, Any], format: str) -> list[tuple[str, tuple, Any]]:
    """Returns (key, path, value) of each entry. Raises Error for a state dict that the format cannot hold."""
    from torch.distributed.checkpoint._nested_dict import flatten_state_dict
    from torch.distributed.checkpoint.stateful import Stateful

    if not isinstance(state_dict, Mapping):
        raise failure("invalid_argument", "a state dict must be a mapping", found=type(state_dict).__name__)
    plain = {key: value.state_dict() if isinstance(value, Stateful) else value for key, value in state_dict.items()}
    check_containers(plain)
    if format in ("pt", "torch-checkpointing"):
        _refuse_other_keys(plain, (str, int) if format == "pt" else (str,))
    try:
        flat, paths = flatten_state_dict(plain)
    except ValueError as cause:  # two entries have the same name
        raise failure("duplicate_key", str(cause)) from cause
    keys = _IntegerKeys(plain)
    return [(key, keys.of(paths[key], value), value) for key, value in flat.items()] + list(_empty(plain))


#: Deeper than any state dict, and less than Python's recursion limit for the functions that descend it.
_MOST_LEVELS = 200


def check_containers(value: Any, key: str = "", above: tuple[int, ...] = ()) -> None:
    """Raises Error, of code "invalid_argument", for containers that hold themselves or are nested too deeply, and for
    keys that are not valid Unicode or exceed 64-bit integers; "unsupported" for uninitialized parameters. PyTorch's own
    flattening, planning, and staging would raise arbitrary exceptions for these."""
    if not isinstance(value, (Mapping, list, tuple)):
        if is_uninitialized(value):
            refuse_without_memory(value, key, "read")
        return
    if id(value) in above:
        raise failure("invalid_argument", f"a {type(value).__name__} holds itself", key=key)
    if len(above) == _MOST_LEVELS:
        raise failure("invalid_argument", "containers are nested too deeply", key=key[:200],
                      expected=f"at most {_MOST_LEVELS} levels")
    if isinstance(value, Mapping):
        for name in value:
            check_name(name, key)
    for name, one in value.items() if isinstance(value, Mapping) else enumerate(value):
        if isinstance(one, (Mapping, list, tuple)) or is_uninitialized(one):
            check_containers(one, f"{key}.{name}" if key else str(name), (*above, id(value)))


def check_tensors(value: Any, key: str = "") -> None:
    """Raises Error, of code "unsupported", for tensors without plain memory that would be entries of a DCP folder.
    PyTorch's own planning and staging would raise arbitrary exceptions for these. Shards are checked when they are
    written. Precondition: `check_containers` was called."""
    import torch
    from torch.distributed._shard.sharded_tensor import ShardedTensor
    from torch.distributed.tensor import DTensor

    if isinstance(value, Mapping):
        for name, one in value.items():
            check_tensors(one, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list):
        for number, one in enumerate(value):
            check_tensors(one, f"{key}.{number}")
    elif isinstance(value, torch.Tensor) and not isinstance(value, (DTensor, ShardedTensor)):
        if not hasattr(value, "__create_write_items__"):  # not a tensor that plans its own parts
            refuse_without_memory(value, key, "read")


def check_name(name: Any, key: str) -> None:
    """Checks a dict's key. Keys that are neither text nor integers become text when the state dict is flattened."""
    if not isinstance(name, (str, int)):
        try:
            name = str(name)
        except Exception as cause:
            raise failure("invalid_argument", "a key of a state dict cannot be converted to text", key=key,
                          found=type(name).__name__) from cause
    if isinstance(name, str):
        try:
            name.encode()
        except UnicodeEncodeError as cause:
            raise failure("invalid_argument", "a key of a state dict is not valid Unicode", key=ascii(key) if key else "",
                          expected="text without surrogates", found=ascii(name)) from cause
    elif type(name) is int and not -2**63 <= name < 2**63:
        raise failure("invalid_argument", "an integer key of a state dict does not fit in 64 bits", key=key,
                      found=hex(name)[:100])


def _empty(value: Any, path: tuple = ()) -> Iterator[tuple[str, tuple, Any]]:
    """Yields empty dicts, which PyTorch's flattening loses: for example an optimizer's state before its first step."""
    if isinstance(value, Mapping):
        if path and not value:
            yield ".".join(str(step[0] if isinstance(step, tuple) else step) for step in path), path, {}
        for key, one in value.items():
            yield from _empty(one, (*path, (key,) if type(key) is int else str(key)))
    elif isinstance(value, list):
        for number, one in enumerate(value):
            yield from _empty(one, (*path, number))


class _IntegerKeys:
    """Restores integer keys: PyTorch's paths have text for every key of a dict. Here (0,) is an integer key, 0 an
    index."""

    def __init__(self, state: Any) -> None:
        self._state = state
        self._keys: dict[int, dict[str, list]] = {}  # by the dict's id

    def of(self, path: tuple, value: Any) -> tuple:
        """Returns the path to the value. Several keys of a dict can have the same text ("1" and 1, "None" and None)."""
        return self._steps_to(value, path, self._state) or path

    def _steps_to(self, value: Any, path: tuple, state: Any) -> tuple | None:
        if not path:
            return () if state is value else None
        step, below = path[0], path[1:]
        if isinstance(state, Mapping) and isinstance(step, str):
            found = ((state[key], (key,) if type(key) is int else step) for key in self._keys_of(state).get(step, ()))
        elif isinstance(state, (list, tuple)) and isinstance(step, int) and step < len(state):
            found = iter([(state[step], step)])
        else:
            return None
        for inner, made in found:
            rest = self._steps_to(value, below, inner)
            if rest is not None:
                return (made, *rest)
        return None

    def _keys_of(self, state: Mapping) -> dict[str, list]:
        keys = self._keys.get(id(state))
        if keys is None:
            keys = self._keys[id(state)] = {}
            for key in state:
                keys.setdefault(str(key), []).append(key)
        return keys


def _refuse_other_keys(value: Any, kinds: tuple[type, ...], key: str = "") -> None:
    """For formats that are nested again: a key that is not text would become another key there."""
    if isinstance(value, Mapping):
        for name, one in value.items():
            below = f"{key}.{name}" if key else str(name)
            if type(name) is bool or not isinstance(name, kinds):
                raise failure("unsupported", "a dict's key that is not text would become text", key=below,
                              expected=" or ".join(kind.__name__ for kind in kinds), found=type(name).__name__,
                              hint="of an optimizer, torch.distributed.checkpoint.state_dict.get_optimizer_state_dict "
                                   "has names; torch.save keeps any key")
            _refuse_other_keys(one, kinds, below)
    elif isinstance(value, list):
        for number, one in enumerate(value):
            _refuse_other_keys(one, kinds, f"{key}.{number}")


def _plain(value: Any, key: str) -> Any:
    """Returns a tensor in host memory; None for other values."""
    import torch
    from torch.distributed._shard.sharded_tensor import ShardedTensor
    from torch.distributed.tensor import DTensor

    if isinstance(value, (DTensor, ShardedTensor)):
        raise failure("unsupported", f"cannot be saved from one process: it is a {type(value).__name__}", key=key,
                      hint="use shardmesh.dcp.save, with which ranks save together")
    return readable(value, key) if isinstance(value, torch.Tensor) else None


def refuse_inside(value: Any, key: str) -> None:
    """Refuses sharded tensors inside tuples and similar values: pickled there, only a part would be saved."""
    import torch
    from torch.distributed._shard.sharded_tensor import ShardedTensor
    from torch.utils._pytree import tree_leaves

    for one in tree_leaves(value):
        if isinstance(one, (torch.Tensor, ShardedTensor)) and (one.__class__ is not torch.Tensor or one.is_meta):
            _plain(one, key)


def archive_of(value: Any, key: str) -> bytes:
    import torch

    with io.BytesIO() as stream:
        try:
            torch.save(value, stream)
        except Exception as cause:  # from pickle, or from the object's own class
            raise failure("unsupported", f"cannot be pickled: {type(cause).__name__}: {cause}", key=key) from cause
        return stream.getvalue()
