# SPDX-License-Identifier: Apache-2.0
"""PyTorch reads our output. Every golden checkpoint is resharded to several meshes, its safetensors are converted to
DCP, and four ranks load and save it together. In the ordinary run, it is resharded to every other mesh, and the group
reads half of what was made; SHARDMESH_SEED chooses, and SHARDMESH_PROPERTY_RUNS=long takes all. PyTorch's own loader must return the golden bytes, in one process and
in three, and its own converter must return the same nested state as for the original."""
import collections
import itertools
import os
import pickle
import re
import subprocess
import sys
import warnings
from pathlib import Path

from common import Oracle, need_torch, seed, sha256

need_torch()
warnings.filterwarnings("ignore")
import torch  # noqa: E402
import torch._dynamo  # noqa: E402, F401  else each process of the group imports it
import torch.distributed as dist  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402
from torch.distributed.checkpoint import default_planner, metadata as dcp_metadata  # noqa: E402
from torch.distributed.checkpoint.filesystem import FileSystemReader  # noqa: E402
from torch.distributed.checkpoint.state_dict_loader import _load_state_dict  # noqa: E402

WORLD = 3
RANKS = 4
LONG = os.environ.get("SHARDMESH_PROPERTY_RUNS") == "long"
FAILURES = (Exception, dcp.api.CheckpointException)  # PyTorch's own is a BaseException


def raw(tensor):
    """The row-major bytes of a tensor of any dtype."""
    tensor = tensor.detach().resolve_conj().resolve_neg().contiguous()
    if tensor.numel() == 0:
        return b""
    length = tensor.numel() * tensor.element_size()
    view = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage(),
                                                 tensor.storage_offset() * tensor.element_size(), (length,), (1,))
    return bytes(view.numpy())


def read_metadata(folder):
    return FileSystemReader(folder).read_metadata()


def load_plain(folder, keys=None):
    """{key: tensor} with torch.distributed.checkpoint in one process; tensors whose dtype forbids loading are left
    out."""
    entries = read_metadata(folder).state_dict_metadata
    wanted = {key: torch.empty(entry.size, dtype=entry.properties.dtype) for key, entry in entries.items()
              if isinstance(entry, dcp_metadata.TensorStorageMetadata) and (keys is None or key in keys)}
    try:
        dcp.load(wanted, checkpoint_id=folder, no_dist=True)
        return wanted
    except FAILURES:
        loaded = {}
        for key, tensor in wanted.items():
            try:
                one = {key: tensor}
                dcp.load(one, checkpoint_id=folder, no_dist=True)
                loaded.update(one)
            except FAILURES as error:
                loaded[key] = error
        return loaded


def load_nested(folder):
    """The state that dcp_to_torch_save would save."""
    state = {}
    _load_state_dict(state, storage_reader=FileSystemReader(folder), planner=default_planner._EmptyStateDictLoadPlanner(),
                     no_dist=True)
    return state


def differences(a, b, where="$"):
    """The differences of two nested states: types, keys, and values bit for bit."""
    if type(a) is not type(b):
        return [f"{where}: {type(a).__name__} and {type(b).__name__}"]
    if isinstance(a, torch.Tensor):
        same = a.dtype == b.dtype and a.shape == b.shape and raw(a) == raw(b)
        return [] if same else [f"{where}: tensors {a.dtype}{list(a.shape)} and {b.dtype}{list(b.shape)} differ"]
    if isinstance(a, collections.abc.Mapping):
        if list(a) != list(b):
            only = set(map(repr, a)) ^ set(map(repr, b))
            if only:
                return [f"{where}: keys differ: {sorted(only)[:5]}"]
        return list(itertools.chain.from_iterable(differences(a[k], b[k], f"{where}[{k!r}]") for k in a))
    if isinstance(a, (list, tuple)):
        if len(a) != len(b):
            return [f"{where}: lengths {len(a)} and {len(b)}"]
        return list(itertools.chain.from_iterable(differences(x, y, f"{where}[{i}]") for i, (x, y) in enumerate(zip(a, b))))
    try:
        return [] if pickle.dumps(a) == pickle.dumps(b) or a == b else [f"{where}: {a!r} and {b!r}"]
    except Exception:
        return [] if repr(a) == repr(b) else [f"{where}: {a!r} and {b!r}"]


def bytes_items(folder):
    """{key: raw bytes} of the items that are not tensors."""
    metadata, found = read_metadata(folder), {}
    for index, info in metadata.storage_data.items():
        if isinstance(metadata.state_dict_metadata[index.fqn], dcp_metadata.BytesStorageMetadata):
            with open(Path(folder) / info.relative_path, "rb") as file:
                file.seek(info.offset)
                found[index.fqn] = file.read(info.length)
    return found


def alternatives(keys):
    return "(?:" + "|".join(re.escape(key) for key in keys) + ")"


def is_foreign(case):
    """This PyTorch cannot read the original: class names have moved since 1.13, and 2.15 writes six
    TensorProperties."""
    newer = case.name == "era_torch_2.15.0" and tuple(map(int, torch.__version__.split(".")[:2])) < (2, 15)
    return case.name.startswith("era_torch_1") or newer


def targets(case):
    """Yields [name, arguments of reshard]: meshes and placements that this case's shapes allow."""
    rank_2 = [key for key, tensor in case.tensors.items() if len(tensor["shape"]) >= 2]
    yield "replicated", ["--mesh", "2", "--default", "R"]
    yield "rows_3", ["--mesh", "3", "--place", ".*=S(0)"]
    yield "strided_2x2", ["--mesh", "dp=2,tp=2", "--place", ".*=SS(0,2),S(0)"]
    if rank_2:
        yield "grid_2x3", ["--mesh", "dp=2,tp=3", "--place", f"{alternatives(rank_2)}=S(0),S(-1)", "--place", ".*=R,S(0)"]


def check_metadata(oracle, name, folder):
    """Runs PyTorch's own validation of a save, and checks that entries point to real bytes."""
    metadata = read_metadata(folder)
    problems = default_planner._validate_global_plan([None, None], metadata)
    oracle.check(not problems, name, f"PyTorch's plan validation: {problems[:3]}")
    for key, entry in metadata.state_dict_metadata.items():
        if isinstance(entry, dcp_metadata.BytesStorageMetadata):
            wanted = [dcp_metadata.MetadataIndex(key)]
        else:
            oracle.check(type(entry.size) is torch.Size, name, f"{key}: size is a {type(entry.size).__name__}")
            wanted = [dcp_metadata.MetadataIndex(key, chunk.offsets) for chunk in entry.chunks]
        for index in wanted:
            info = metadata.storage_data.get(index)
            if oracle.check(info is not None, name, f"no storage entry for {index}"):
                size = (Path(folder) / info.relative_path).stat().st_size
                oracle.check(info.offset + info.length <= size, name, f"{index} reaches beyond {info.relative_path}")
    return metadata


def check_values(oracle, name, folder, case, keys=None):
    loaded = load_plain(folder)
    wanted = set(case.tensors) if keys is None else set(keys)
    oracle.check(set(loaded) == wanted, name, f"keys differ: {sorted(set(loaded) ^ wanted)[:6]}")
    unread = []
    for key in wanted & set(loaded):
        if isinstance(loaded[key], BaseException):
            unread.append((key, loaded[key]))
            continue
        expected = case.tensors[key]
        oracle.check(list(loaded[key].shape) == expected["shape"], name, f"{key}: shape {list(loaded[key].shape)}")
        oracle.check(str(loaded[key].dtype) == "torch." + expected["dtype"], name, f"{key}: dtype {loaded[key].dtype}")
        oracle.check(sha256(raw(loaded[key])) == expected["sha256"], name, f"{key}: the bytes differ")
    if unread:  # a failure only if PyTorch can read the original
        original = load_plain(case.checkpoint, {key for key, _ in unread})
        for key, error in unread:
            oracle.check(isinstance(original.get(key), BaseException), name, f"{key}: {type(error).__name__}: {error}")


def whole_paths(metadata):
    """planner_data; where PyTorch cannot nest by a path, the path itself."""
    return metadata.planner_data and {**metadata.planner_data, **getattr(metadata, "nested_paths", {})}


def check_nested(oracle, name, folder, case):
    try:
        original = load_nested(case.checkpoint)
    except FAILURES as error:
        print(f"note {name}: PyTorch cannot nest the original ({type(error).__name__})")
        if "Missing key" in str(error):  # PyTorch cannot nest by these paths; ours can be nested
            oracle.check(load_nested(folder), name, "has nothing")
        return
    found = differences(original, load_nested(folder))
    oracle.check(not found, name, f"nested states differ: {found[:4]}")


def check_single(oracle):
    """One process. Returns the folders that the group reads afterwards."""
    made = []
    for turn, case in enumerate(oracle.cases(), seed()):
        if not case.is_dcp or case.unreadable:
            continue
        era = is_foreign(case)
        for target, arguments in targets(case) if LONG else list(targets(case))[turn % 2::2]:
            name, folder = f"{case.name} -> {target}", oracle.work / f"{case.name}.{target}"
            if oracle.succeeds(name, "reshard", case.checkpoint, folder, *arguments) is None:
                continue
            try:
                ours = check_metadata(oracle, name, folder)
                check_values(oracle, name, folder, case)
                if not era:
                    if (case.checkpoint / ".metadata").exists():
                        theirs = read_metadata(case.checkpoint)
                        oracle.check(whole_paths(ours) == theirs.planner_data, name, "planner_data differs")
                        if case.name != "options_zstd":  # its stored bytes are compressed, ours are not
                            oracle.check(bytes_items(folder) == bytes_items(case.checkpoint), name, "objects' bytes differ")
                        check_nested(oracle, name, folder, case)
                made.append((name, str(folder)))
            except FAILURES as error:
                oracle.check(False, name, f"PyTorch cannot read it: {type(error).__name__}: {error}")
    for case in oracle.cases():
        source = case.folder / "expected.safetensors"
        if not source.is_file():
            continue
        name, folder = f"{case.name}: safetensors -> dcp", oracle.work / f"{case.name}.from_safetensors"
        if oracle.succeeds(name, "convert", source, folder, "--to", "dcp") is None:
            continue
        try:
            check_metadata(oracle, name, folder)
            check_values(oracle, name, folder, case, [k for k, t in case.tensors.items() if t["in_safetensors"]])
        except FAILURES as error:
            oracle.check(False, name, f"PyTorch cannot read it: {type(error).__name__}: {error}")
    return made


def check_ranks(oracle):
    """Output that four ranks saved together. Returns the folders that the group reads afterwards."""
    made = []
    for case in oracle.cases():
        if not case.is_dcp or case.unreadable:
            continue
        name, folder = f"{case.name} -> {RANKS} ranks", oracle.work / f"{case.name}.ranks"
        run = subprocess.run([oracle.args.ranks.resolve(), case.checkpoint, folder, str(RANKS)], capture_output=True, text=True)
        if not oracle.check(run.returncode == 0, name, run.stderr.strip()):
            continue
        left_out = set(run.stdout.splitlines())
        try:
            ours = check_metadata(oracle, name, folder)
            check_values(oracle, name, folder, case, set(case.tensors) - left_out)
            if not left_out and not is_foreign(case) and (case.checkpoint / ".metadata").exists():
                theirs = read_metadata(case.checkpoint)
                if theirs.planner_data is not None:
                    oracle.check(whole_paths(ours) == theirs.planner_data, name, "planner_data differs")
                    check_nested(oracle, name, folder, case)
            made.append((name, str(folder)))
        except FAILURES as error:
            oracle.check(False, name, f"PyTorch cannot read it: {type(error).__name__}: {error}")
    return made


def group_member(rank, rendezvous, folders, expected, problems):
    """One of WORLD processes: loads every tensor as a DTensor by rows and by columns, and compares local bytes with
    the whole."""
    from torch.distributed.tensor import DTensor, Shard
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=WORLD)
    mesh = dist.init_device_mesh("cpu", (WORLD,))
    for name, folder in folders:
        try:
            entries = read_metadata(folder).state_dict_metadata
            wholes, state = load_plain(folder), {}
            for number, (key, entry) in enumerate(entries.items()):
                if not isinstance(wholes.get(key), torch.Tensor) or len(entry.size) == 0:
                    continue
                placements = [Shard(number % len(entry.size))]
                shape, _ = compute_local_shape_and_global_offset(entry.size, mesh, placements)
                local = torch.empty(shape, dtype=entry.properties.dtype)
                state[key] = DTensor.from_local(local, mesh, placements, run_check=False, shape=entry.size,
                                                stride=torch.empty(entry.size, device="meta").stride())
            dcp.load(state, checkpoint_id=folder)
            for key, tensor in state.items():
                shape, offset = compute_local_shape_and_global_offset(tensor.shape, mesh, tensor.placements)
                part = wholes[key]
                for d, (start, size) in enumerate(zip(offset, shape)):
                    part = part.narrow(d, min(start, part.shape[d]), size)
                if raw(part) != raw(tensor.to_local()):
                    problems.append((name, f"rank {rank}: {key} {tensor.placements} differs"))
        except FAILURES as error:
            problems.append((name, f"rank {rank}: {type(error).__name__}: {str(error)[:400]}"))
    dist.barrier()
    dist.destroy_process_group()


def check_group(oracle, folders):
    import torch.multiprocessing as multiprocessing
    with multiprocessing.Manager() as manager:
        problems = manager.list()
        arguments = (str(oracle.work / "rendezvous"), folders, None, problems)
        context = multiprocessing.start_processes(group_member, arguments, nprocs=WORLD, join=False, start_method="fork")
        while not context.join():
            pass
        for name, what in problems:
            oracle.check(False, f"{name} ({WORLD} processes)", what)
        oracle.check(True, "group", "")


def main():
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    oracle = Oracle(__doc__, lambda parser: parser.add_argument("--ranks", type=Path, required=True, help="rank_copy"), syncs=False)
    torch.set_num_threads(1)  # no threads before the group is forked
    folders = check_single(oracle) + check_ranks(oracle)
    if folders:
        check_group(oracle, folders if LONG else folders[seed() % 2::2])
    oracle.finish()


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main()
