# SPDX-License-Identifier: Apache-2.0
"""An opened checkpoint of any format: a mapping from keys to entries, and loading."""
from __future__ import annotations

import contextlib
import io
import os
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Union

from . import _arguments, _native, _plain_pickle
from ._conventions import mapping_options
from ._error import Box, Error, failure, printable_url
from ._loading import Loading
from ._mapped import MappedTensor
from ._process import of_another
from ._progress import Progress, reporting
from ._tensors import Destination, Request, dtype_named, fresh

if TYPE_CHECKING:
    import torch

Where = Union[Box, tuple[Sequence[int], Sequence[int]]]


class Chunk(NamedTuple):
    """A part of a tensor, and the location of its bytes: a range of one of the checkpoint's files ("" if unknown)."""

    box: Box
    file: str
    offset: int
    length: int


@dataclass(frozen=True)
class TensorEntry:
    """A tensor of a checkpoint. `entry[2:4]` loads rows 2 and 3; `entry[...]` loads the whole tensor."""

    key: str
    #: PyTorch's name, such as "float32"; "undefined" for a representation that shardmesh does not read
    dtype: str
    shape: tuple[int, ...]
    #: the key, split into the keys and indices of nested containers
    path: tuple[Union[str, int], ...]
    requires_grad: bool
    #: the Python type of a representation that shardmesh does not read; "" for all others
    foreign_type: str
    _checkpoint: Checkpoint
    _index: int

    @property
    def chunks(self) -> list[Chunk]:
        """The chunks of the tensor, in the order of the files."""
        return [Chunk(Box(offsets, sizes), file, offset, length)
                for offsets, sizes, file, offset, length, _ in self._checkpoint._native.chunks(self._index)]

    def load(self, box: Where | None = None, *, within: float | None = None) -> torch.Tensor:
        return self._checkpoint.load(self.key, box, within=within)

    def map(self, box: Where | None = None, *, allow_unaligned: bool = False) -> MappedTensor:
        return self._checkpoint.map_tensor(self.key, box, allow_unaligned=allow_unaligned)

    def __getitem__(self, index: Any) -> torch.Tensor:
        return self.load(box_of_slices(self.shape, index, self.key))

    def __str__(self) -> str:
        return f"{self.key}: {self.dtype}{list(self.shape)}"


@dataclass(frozen=True)
class ObjectEntry:
    """An entry of a checkpoint that is not a tensor."""

    key: str
    path: tuple[Union[str, int], ...]
    _checkpoint: Checkpoint
    _index: int

    @property
    def type(self) -> str:
        """The Python type's name, such as "builtins.int". It is read from the pickle, which is not run."""
        return self._value()[1]

    @property
    def json(self) -> str:
        """The value as JSON, with the tags of docs/formats.md. It is read from the pickle, which is not run."""
        return self._value()[2]

    def _value(self) -> tuple[str, str, str]:
        with self._checkpoint._calling() as native:
            return native.object_value(self._index)

    def load(self, weights_only: bool = True, *, within: float | None = None) -> Any:
        return self._checkpoint.load_object(self.key, weights_only, within=within)

    def __str__(self) -> str:
        return f"{self.key}: {self.type}"


Entry = Union[TensorEntry, ObjectEntry]


class Checkpoint(Mapping[str, Entry]):
    """An opened checkpoint, made by `shardmesh.open`. Files are opened when they are read; several threads may load at
    once.

    A forked child may go on using it, unless another thread was reading at the fork: then every call raises Error.
    """

    def __init__(self, native: _native.Checkpoint) -> None:
        self._reader = native
        self._calls = 0  # running now
        self._stuck_since = 0  # if not 0: the process that forked while a thread was in a call and held its locks
        _open_checkpoints[id(self)] = self
        self._maps: dict[bool, _native.TensorMap] = {}
        # The type of each entry, and its values before the checkpoint and the index. Entries that lived here would refer
        # back to the checkpoint, and its files would stay open until the garbage collector looks for cycles.
        self._rows: dict[str, tuple[Any, tuple[Any, ...], int]] = {}
        for i, (key, dtype, shape, path, _, requires_grad, foreign) in enumerate(native.tensors()):
            self._rows[key] = (TensorEntry, (key, dtype, shape, path, requires_grad, foreign), i)
        for i, (key, path) in enumerate(native.objects()):
            self._rows[key] = (ObjectEntry, (key, path), i)

    @property
    def _native(self) -> _native.Checkpoint:
        if self._stuck_since:
            raise of_another("a checkpoint that a thread was reading at the fork", self._stuck_since,
                             "open the checkpoint in each process", self._reader.path)
        return self._reader

    @contextlib.contextmanager
    def _calling(self) -> Iterator[_native.Checkpoint]:
        native = self._native
        self._calls += 1
        try:
            yield native
        finally:
            self._calls -= 1

    @property
    def path(self) -> str:
        return self._reader.path

    @property
    def format(self) -> str:
        """The format: "dcp", "torch" (a .pt file), "safetensors", "hf" (a Hugging Face folder), "torch-files",
        "deepspeed", "torchsnapshot", "torch-checkpointing", "parts", "gguf", "npz", "nemo", or "delta" (`open_delta`)."""
        return self._native.format

    @property
    def files(self) -> list[str]:
        return self._native.files

    @property
    def texts(self) -> dict[str, str]:
        """The checkpoint's texts by name, such as those in the headers of safetensors files."""
        return dict(self._native.texts)

    @property
    def tensor_bytes(self) -> int:
        return self._native.tensor_bytes

    @property
    def warnings(self) -> list[Error]:
        return self._native.warnings

    @property
    def problems(self) -> list[Error]:
        """Defects that leave the rest readable."""
        return self._native.problems

    @property
    def notes(self) -> list[str]:
        return self._native.notes

    @property
    def tensors(self) -> list[TensorEntry]:
        return [entry for entry in self.values() if isinstance(entry, TensorEntry)]

    @property
    def objects(self) -> list[ObjectEntry]:
        return [entry for entry in self.values() if isinstance(entry, ObjectEntry)]

    def __getitem__(self, key: str) -> Entry:
        kind, values, index = self._rows[key]
        return kind(*values, self, index)

    def __contains__(self, key: object) -> bool:
        return key in self._rows

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    # Entries refer to their checkpoint, so a comparison as mappings would never end. Equal entries would not mean equal
    # values either: see `diff`.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"<shardmesh.Checkpoint {printable_url(self.path)!r}: {self.format}, {len(self)} entries>"

    def load(self, key: str, box: Where | None = None, *, weights_only: bool = True, threads: int = 0,
             within: float | None = None) -> Any:
        """Loads the tensor of that key, or a box of it, into new memory of the stored dtype; or loads an object.

        box: (offsets, sizes), in elements.
        weights_only: for objects, as in `torch.load`.
        within: as in `open`, here and below.

        Raises Error: missing_key with the nearest key, shape_mismatch, and any defect of the files.
        """
        return self._load_one(key, box, weights_only, threads, _arguments.end_of(within))

    def _load_one(self, key: str, box: Where | None, weights_only: bool, threads: int, end: float | None) -> Any:
        import torch

        entry = self.get(_arguments.key(key))
        if isinstance(entry, ObjectEntry):
            if box is not None:
                raise failure("dtype_mismatch", "an object has no boxes", key=key, path=self.path)
            return self._load_object(key, weights_only, end)
        if entry is None or entry.foreign_type:
            where, dtype = ((), ()), torch.uint8  # the C++ half refuses these, in its own words
        else:
            where = ((0,) * len(entry.shape), entry.shape) if box is None else _arguments.box(box, key)
            self._check_inside(entry, where)
            dtype = dtype_named(entry.dtype, key)
        made = fresh(tuple(where[1]), dtype, key=key)
        self._load([Destination(made, key).request(where)], threads, True, end=end)
        return made

    def _check_inside(self, entry: TensorEntry, where: Where) -> None:
        """Raises the C++ half's error for a box that does not fit, before memory is allocated for it."""
        offsets, sizes = where
        if not (len(offsets) == len(sizes) == len(entry.shape)) or any(
                offset < 0 or size < 0 or offset + size > whole for offset, size, whole in zip(offsets, sizes, entry.shape)):
            self._load([(entry.key, where, (0, "uint8", sizes, (0,) * len(sizes)), None)], 1, True)  # raises

    def load_into(self, wanted: Mapping[str, torch.Tensor] | Sequence[tuple[str, Where | None, torch.Tensor]], *,
                  threads: int = 0, allow_narrowing: bool = False, allow_shape_mismatch: bool = False,
                  check: bool = False, progress: Progress = None, within: float | None = None) -> None:
        """Fills tensors in place. wanted: {key: tensor}, or a sequence of (key, box, tensor), where the box may be None
        (all).

        A tensor may have any strides, any dtype to which the stored one converts, and be on any device. If any of them
        does not fit, or two of them fill one byte with different elements (Error "overlap"), nothing is read. The same
        memory may be given under several keys (tied weights) whose values are all equal; else Error "disagreement".
        Parts that several tensors share are read once.

        allow_shape_mismatch: tensors may have other sizes with the same number of dimensions, and boxes may reach
        beyond the stored tensor. Elements keep their indices; those that are not stored are loaded as zeros.
        check: compare checksums of the data read, which is then read twice (Error "checksum_mismatch").
        """
        end = _arguments.end_of(within)
        allow_shape_mismatch = _arguments.flag("allow_shape_mismatch", allow_shape_mismatch)
        destinations, requests = self._destinations(wanted, allow_shape_mismatch)
        total = sum(to.tensor.nbytes for to in destinations)
        with reporting(progress, total, "load") as report:
            self._load(requests, threads, allow_narrowing, report, check, allow_shape_mismatch=allow_shape_mismatch,
                       end=end)
            if report:
                report(total)
        for to in destinations:
            to.finish()

    def start_load(self, wanted: Mapping[str, torch.Tensor] | Sequence[tuple[str, Where | None, torch.Tensor]], *,
                   threads: int = 0, allow_narrowing: bool = False, allow_shape_mismatch: bool = False,
                   check: bool = False, on_arrival: Callable[[str], None] | None = None,
                   progress: Progress = None, within: float | None = None) -> Loading:
        """Starts `load_into` in its own thread. Tensors arrive in storage order, and each can be used while others are
        still loading. See `Loading`.

        on_arrival: called with each key when everything requested of it has arrived, in the load's thread, one at a
        time. An exception from it ends the load, and `Loading.wait` raises it. Do not touch a tensor before its key has
        arrived.

        Tensors without memory, and whole tensors of another shape, are refused at once; `wait` raises all other errors.
        """
        end = _arguments.end_of(within)
        allow_shape_mismatch = _arguments.flag("allow_shape_mismatch", allow_shape_mismatch)
        destinations, requests = self._destinations(wanted, allow_shape_mismatch)
        threads = _arguments.threads(threads)
        on_arrival = _arguments.callback("on_arrival", on_arrival)
        by_key: dict[str, list[Destination]] = {}
        for to in destinations:
            by_key.setdefault(to.key, []).append(to)

        def load(arrived: Callable[[str], None], report: Callable[[int], None]) -> None:
            def finished(key: str) -> None:
                for to in by_key[key]:
                    to.finish()
                arrived(key)

            self._load(requests, threads, allow_narrowing, report, check, finished, allow_shape_mismatch, end)

        return Loading(load, on_arrival, progress, sum(to.tensor.nbytes for to in destinations))

    def map_tensor(self, key: str, box: Where | None = None, *, allow_unaligned: bool = False) -> MappedTensor:
        """Maps the tensor of that key, or a box of it, in place in its file. Nothing is copied, no byte is read before
        it is accessed, and checksums are not compared. See `MappedTensor`.

        allow_unaligned: also map tensors whose first byte is not aligned for their dtype.

        Raises Error: missing_key; shape_mismatch; unsupported if the plain bytes are not in one file (compressed,
        several chunks, dequantized); unaligned; io.
        """
        box = None if box is None else _arguments.box(box, _arguments.key(key))
        allow_unaligned = _arguments.flag("allow_unaligned", allow_unaligned)
        with self._calling() as native:
            tensors = self._maps.setdefault(allow_unaligned, _native.TensorMap.make(native, allow_unaligned))
            return MappedTensor(key, self.path, tensors.tensor(_arguments.key(key), box))

    def _destinations(self, wanted: Any, allow_shape_mismatch: bool) -> tuple[list[Destination], list[Request]]:
        """Returns the tensors to fill, and the C++ half's requests."""
        destinations: list[Destination] = []
        requests: list[Request] = []
        for key, box, tensor in _arguments.wanted(wanted):
            to = Destination(_arguments.tensor(tensor, _arguments.key(key)), key)
            entry = self.get(key)
            fits = (not isinstance(entry, TensorEntry) or entry.shape == tuple(tensor.shape)
                    or (allow_shape_mismatch and len(entry.shape) == tensor.ndim))
            if box is None and not fits:
                self._raise_conflict(key)
                self._native.load_whole(key, to.memory, None)  # raises, naming the shape that the memory has and needs
            destinations.append(to)
            where = ((0,) * tensor.ndim, tuple(tensor.shape)) if box is None else _arguments.box(box, key)
            requests.append(to.request(where))
        return destinations, requests

    def _raise_conflict(self, key: str) -> None:
        """Raises the error of a key under which ranks hold different values. It precedes errors about the lowest rank's
        value."""
        for warning in self.warnings:
            if warning.code == "disagreement" and warning.key == key:
                raise warning

    def load_object(self, key: str, weights_only: bool = True, *, within: float | None = None) -> Any:
        """Loads the object of that key. PyTorch runs its pickle; weights_only=True refuses everything but plain data.
        Objects of safetensors are JSON; they go through an unpickler that knows only plain data."""
        return self._load_object(key, weights_only, _arguments.end_of(within))

    def _load_object(self, key: str, weights_only: bool, end: float | None) -> Any:
        import torch

        weights_only = _arguments.flag("weights_only", weights_only)
        archive = self._object_bytes(key, end)
        with io.BytesIO(archive) as stream:
            try:
                if weights_only and self.format in ("safetensors", "hf"):
                    return _plain_pickle.load(archive)
                return torch.load(stream, map_location="cpu", weights_only=weights_only)
            except Exception as cause:
                if not weights_only:
                    raise pickle_failure(cause, key, self.path) from cause
                entry = self[key]
                kind = entry.type if isinstance(entry, ObjectEntry) else ""
                raise failure("unsupported", f"is a {kind}, which is more than plain data", key=key, path=self.path,
                              hint="pass weights_only=False to run its pickle, which may do anything") from cause

    def object_bytes(self, key: str, *, within: float | None = None) -> bytes:
        """Returns the bytes that `torch.save` would write for the object."""
        return self._object_bytes(key, _arguments.end_of(within))

    def _object_bytes(self, key: str, end: float | None) -> bytes:
        entry = self.get(_arguments.key(key))
        if not isinstance(entry, ObjectEntry):
            raise failure("missing_key", "there is no object with this key", key=key, path=self.path)
        with self._calling() as native:
            return native.object_archive(entry._index, end)

    def _load(self, requests: list[Request], threads: int, allow_narrowing: bool, report: Any = None, check: bool = False,
              arrived: Any = None, allow_shape_mismatch: bool = False, end: float | None = None) -> None:
        options = {"threads": _arguments.threads(threads), "check": _arguments.flag("check", check),
                   "allow_narrowing": _arguments.flag("allow_narrowing", allow_narrowing),
                   "allow_shape_mismatch": allow_shape_mismatch, "end": end}
        with self._calling() as native:
            native.load(requests, options, arrived, report)


def pickle_failure(cause: Exception, key: str, path: str) -> Error:
    """Makes the Error of an object whose pickle raised an exception when it was run. A class that this program lacks is
    no damage to the checkpoint."""
    what = f"{type(cause).__name__}: {cause}"
    if isinstance(cause, (ImportError, AttributeError)):
        return failure("unsupported", f"needs code that cannot be imported: {what}", key=key, path=path,
                       hint="import or install the package that defines its class")
    if isinstance(cause, MemoryError):
        return failure("no_memory", f"there is no memory for the object: {what}", key=key, path=path)
    return failure("bad_pickle", f"its pickle could not be run: {what}", key=key, path=path)


#: For children that are forked while threads read.
_open_checkpoints: weakref.WeakValueDictionary[int, Checkpoint] = weakref.WeakValueDictionary()


def _mark_stuck() -> None:
    for checkpoint in list(_open_checkpoints.values()):
        if checkpoint._calls:
            checkpoint._stuck_since = os.getppid()


os.register_at_fork(after_in_child=_mark_stuck)


def _is_range(index: Any) -> bool:
    try:
        return isinstance(index, slice) and index.step in (None, 1) and bool(index.indices(0))
    except Exception:  # bounds that are not integers
        return False


def box_of_slices(shape: tuple[int, ...], index: Any, key: str) -> Box:
    """Returns the box of `tensor[index]`, for slices of step 1 and an ellipsis."""
    given = list(index) if isinstance(index, tuple) else [index]
    at = next((number for number, one in enumerate(given) if one is Ellipsis), None)
    if at is not None:
        given[at:at + 1] = [slice(None)] * (len(shape) - len(given) + 1)
    given += [slice(None)] * (len(shape) - len(given))
    if len(given) > len(shape) or not all(_is_range(one) for one in given):
        raise failure("invalid_argument", "an entry can only be indexed with a box", key=key, expected="slices of step 1",
                      found=_arguments.shown(index), hint="index the loaded tensor for other selections")
    bounds = [one.indices(size) for one, size in zip(given, shape)]
    return Box(tuple(begin for begin, _, _ in bounds), tuple(max(0, end - begin) for begin, end, _ in bounds))


def open(path: str | os.PathLike[str], *, only_keys: Sequence[str] = (), all_parts: bool = False,
         dequantize: bool = False, block_size: int = 128, limit_factor: int = 1, rank: int | None = None,
         keys_at_ranks: bool = False, map: str | os.PathLike[str] | None = None,
         config: str | os.PathLike[str] | Mapping[str, Any] | None = None, sizes: Mapping[str, int] | None = None,
         map_inverse: bool = False, within: float | None = None) -> Checkpoint:
    """Opens a DCP folder, a .pt file, a safetensors file, a Hugging Face folder, or any other format in
    docs/formats.md. No pickle is run.

    only_keys: the only keys that you will use. The description of other keys in a DCP folder is skipped, so few of them
    or none are listed.
    all_parts: show everything in a folder as one checkpoint with keys "PART.KEY".
    dequantize: list FP8 weights with block scales (block_size rows and columns), and MXFP4, as the float32 values that
    they represent.
    limit_factor: raises, by this factor, the limit on the cost of reading a file before it is taken for an attack.
    rank, keys_at_ranks: for folders that PyTorch's ranks saved with use_collectives=False, where ranks may hold
    different values under one key. Reading such a key raises Error "disagreement", unless `rank` names the rank whose
    value to read, or `keys_at_ranks` lists it as "KEY@RANK" for each rank. Shards are merged in any case.
    map: show the checkpoint under another naming convention: two names, such as "hf.llama:megatron.gpt" (see
    `mappings`), or the path of a .toml file. Tensors are renamed, fused, and split; a fused tensor is computed when it
    is read. Raises Error if a tensor of the checkpoint has no place in the mapping, or one is missing. Not together with
    only_keys.
    config: the sizes of the model for `map`: a JSON file, or a mapping of numbers, such as a configuration of
    transformers as a dict. None: config.json or params.json beside the checkpoint, if there is one.
    sizes: values that replace those of config, and of the mapping's own [sizes] and [captures].
    map_inverse: apply the mapping of a file from right to left.
    within: the time limit of the call in seconds; None: no limit. A call that exceeds it raises Error
    "deadline_exceeded", at most a second later if it waits for a server.
    """
    return Checkpoint(opened(path, only_keys=only_keys, all_parts=all_parts, dequantize=dequantize,
                             block_size=block_size, limit_factor=limit_factor, rank=rank, keys_at_ranks=keys_at_ranks,
                             map=map, config=config, sizes=sizes, map_inverse=map_inverse,
                             end=_arguments.end_of(within)))


def opened(path: str | os.PathLike[str], *, only_keys: Sequence[str] = (), all_parts: bool = False,
           dequantize: bool = False, block_size: int = 128, check_sums: bool = False, limit_factor: int = 1,
           rank: int | None = None, keys_at_ranks: bool = False, map: str | os.PathLike[str] | None = None,
           config: str | os.PathLike[str] | Mapping[str, Any] | None = None, sizes: Mapping[str, int] | None = None,
           map_inverse: bool = False, end: float | None = None) -> _native.Checkpoint:
    """Returns the C++ half's checkpoint. check_sums: compare the checksums of dequantized and mapped tensors. end: see
    `_arguments.end_of`."""
    keys_at_ranks = _arguments.flag("keys_at_ranks", keys_at_ranks)
    if rank is not None:
        rank = _arguments.number("rank", rank, most=2**31 - 1)
        if keys_at_ranks:
            raise failure("invalid_argument", "pass either rank or keys_at_ranks")
    options = {"only_keys": _arguments.texts("only_keys", only_keys), "rank": rank, "keys_at_ranks": keys_at_ranks,
               "all_parts": _arguments.flag("all_parts", all_parts), "dequantize": _arguments.flag("dequantize", dequantize), "block_size": _arguments.number("block_size", block_size, 1),
               "check_sums": check_sums, "limit_factor": _arguments.number("limit_factor", limit_factor, 1), "end": end,
               **mapping_options(map, config, sizes, map_inverse)}
    if map is not None and options["only_keys"]:
        raise failure("invalid_argument", "pass either map or only_keys")
    return _native.open(_arguments.source(path), options)


def load(path: str | os.PathLike[str], key: str, box: Where | None = None, *, weights_only: bool = True,
         rank: int | None = None, keys_at_ranks: bool = False, within: float | None = None) -> Any:
    """Loads one tensor, one box of it, or one object of a checkpoint of any format. See `Checkpoint.load`, `open`."""
    end = _arguments.end_of(within)
    return _opened_for(path, key, rank, keys_at_ranks, end)._load_one(key, box, weights_only, 0, end)


def map_tensor(path: str | os.PathLike[str], key: str, box: Where | None = None, *, allow_unaligned: bool = False,
               rank: int | None = None, keys_at_ranks: bool = False, within: float | None = None) -> MappedTensor:
    """Maps one tensor, or a box of it, in place in its file. For many tensors, `Checkpoint.map_tensor` is cheaper."""
    opened_for = _opened_for(path, key, rank, keys_at_ranks, _arguments.end_of(within))
    return opened_for.map_tensor(key, box, allow_unaligned=allow_unaligned)


def _opened_for(path: str | os.PathLike[str], key: str, rank: int | None, keys_at_ranks: bool,
                end: float | None) -> Checkpoint:
    """Opens little more than that key; if it is missing, everything, so that the error can name the nearest key."""
    made = Checkpoint(opened(path, only_keys=(_arguments.key(key),), rank=rank, keys_at_ranks=keys_at_ranks, end=end))
    return made if key in made else Checkpoint(opened(path, rank=rank, keys_at_ranks=keys_at_ranks, end=end))
