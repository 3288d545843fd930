# SPDX-License-Identifier: Apache-2.0
"""Forks real PyTorch ranks over gloo. Each loads the library of tests/torch/*.cpp and calls one of its functions.

    ranks.py LIBRARY RANKS CASE     conformance | redistribute | errors | memory | forks | late | time
    ranks.py PROGRAM RANKS suite [FEWEST [CATCH2 ARGUMENTS]]

The suite is tests/distributed, run with FEWEST to RANKS ranks; PROGRAM embeds Python (suite_main.cpp). Exits with 0
if every rank succeeds."""
import ctypes
import os
import signal
import socket
import sys
import time


def load(path):
    import torch  # noqa: F401  loads the libraries that ours is linked with

    library = ctypes.CDLL(path)
    if hasattr(library, "run_suite"):
        return library
    for name in ("check_conformance", "check_redistribute", "error_of_group", "exchange_tags", "check_forks",
                 "keep_until_exit"):
        getattr(library, name).restype = ctypes.c_char_p
    library.time_redistribute.restype = library.time_wrapping.restype = ctypes.c_double
    library.time_redistribute.argtypes = [ctypes.c_char_p, ctypes.c_int64, ctypes.c_int]
    return library


def conformance(library, group, dist):
    wrong = library.check_conformance(group.group_name.encode()).decode()
    return wrong or group_is_sound(dist)


def redistribute(library, group, dist):
    rounds, seed = int(os.environ.get("SHARDMESH_TORCH_ROUNDS", "40")), int(os.environ["SHARDMESH_SEED"])
    wrong = library.check_redistribute(group.group_name.encode(), rounds, seed).decode()
    return f"seed {seed}: {wrong}" if wrong else group_is_sound(dist)


def errors(library, group, dist):
    text = library.error_of_group(b"no such group").decode()
    return "" if "cannot create a process group" in text else f"the error of a group that is not there is {text!r}"


def memory(library, group, dist):
    """A finished tag leaves nothing behind."""
    name = group.group_name.encode()
    count, most = (1500, 512) if os.environ.get("SHARDMESH_PROPERTY_RUNS") == "long" else (800, 384)
    resident = []
    for _ in range(3):  # the first run fills memory that is kept for reuse
        wrong = library.exchange_tags(name, count).decode()
        if wrong:
            return wrong
        pages = int(open("/proc/self/statm").read().split()[1])
        resident.append(pages * os.sysconf("SC_PAGE_SIZE") >> 10)
    grown = resident[2] - resident[1]
    return "" if grown < most else f"{count} exchanges leave {grown} KiB behind ({resident})"


def forks(library, group, dist):
    return library.check_forks(group.group_name.encode()).decode() or group_is_sound(dist)


def late(library, group, dist):
    """A communicator's threads outlive the program's static objects."""
    return library.keep_until_exit(group.group_name.encode()).decode()


def group_is_sound(dist):
    """Our errors leave the user's group as it was."""
    import torch

    value = torch.ones(3)
    dist.all_reduce(value)
    return "" if value.tolist() == [float(dist.get_world_size())] * 3 else f"all_reduce gives {value}"


def time_both(library, group, dist):
    """Compares C++ redistribution with DTensor.redistribute on the same ranks."""
    import torch
    from torch.distributed.tensor import DTensor, Shard, init_device_mesh

    if dist.get_rank() == 0:
        print(f"a tensor as a view {library.time_wrapping(0):.0f} ns, as a dtensor {library.time_wrapping(1):.0f} ns")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for side in (128, 512, 2048):
        ours = library.time_redistribute(group.group_name.encode(), side, 30)
        tensor = DTensor.from_local(torch.ones(side // dist.get_world_size(), side), mesh, [Shard(0)], run_check=False)
        times = []
        for _ in range(30):
            dist.barrier()
            began = time.perf_counter()
            tensor.redistribute(mesh, [Shard(1)])
            times.append(1e6 * (time.perf_counter() - began))
        if dist.get_rank() == 0:
            print(f"{side * side * 4 >> 10} KiB: ours {ours:.0f} us, DTensor.redistribute {sorted(times)[15]:.0f} us")
    return ""


def suite(library, group, dist):
    """Makes a separate group for every number of ranks."""
    ranks, fewest, *arguments = dist.get_world_size(), *(sys.argv[4:] or ["2"])
    groups = [dist.new_group(list(range(size + 1))) for size in range(ranks)]
    inside = [made.group_name.encode() if dist.get_rank() <= number else b"" for number, made in enumerate(groups)]
    words = [b"torch_distributed", *(word.encode() for word in arguments)]
    status = library.run_suite((ctypes.c_char_p * ranks)(*inside), ranks, int(fewest), len(words),
                               (ctypes.c_char_p * len(words))(*words))
    return f"the suite ends with status {status}" if status else group_is_sound(dist)


CASES = {"conformance": conformance, "redistribute": redistribute, "errors": errors, "memory": memory,
         "forks": forks, "late": late, "time": time_both, "suite": suite}


def rank_main(path, case):
    import torch.distributed as dist

    library = load(None if case == "suite" else path)
    dist.init_process_group("gloo")
    wrong = CASES[case](library, dist.group.WORLD, dist)
    if wrong:
        print(f"rank {dist.get_rank()}: {wrong}", file=sys.stderr, flush=True)
    dist.barrier()
    dist.destroy_process_group()
    return 1 if wrong else 0


def fork_ranks(path, ranks, case):
    """Imports PyTorch once, which takes two seconds, and forks the ranks. Returns the exit status of the ranks, or of
    this rank."""
    import torch.distributed  # noqa: F401

    started = []
    try:
        for rank in range(ranks):
            child = os.fork()
            if child == 0:
                started = []
                os.environ["RANK"] = str(rank)
                return rank_main(path, case)
            started.append(child)
        status = 0
        while started:
            ended, how = os.wait()
            started.remove(ended)
            status = max(status, abs(os.waitstatus_to_exitcode(how)))
        return status
    finally:
        for child in started:
            os.kill(child, signal.SIGKILL)


def main(path, ranks, case):
    # The socket stays open, so that no other program gets the port before rank 0 listens on it, seconds later.
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind(("127.0.0.1", 0))
    port = reserved.getsockname()[1]
    seed = os.environ.get("SHARDMESH_SEED") or str(int.from_bytes(os.urandom(4), "little"))
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), WORLD_SIZE=str(ranks), SHARDMESH_SEED=seed,
                      OMP_NUM_THREADS="1")
    if case == "suite" and "SHARDMESH_TORCH_EMBEDDED" not in os.environ:
        os.environ["SHARDMESH_TORCH_EMBEDDED"] = "1"
        os.execv(path, [path, sys.executable, "-B", *sys.argv])
    return fork_ranks(path, ranks, case)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
