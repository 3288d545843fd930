# SPDX-License-Identifier: Apache-2.0
"""Real PyTorch ranks: processes with a gloo group between them. They are forked, so that torch is imported only
once; the test's own process makes no threads before that."""
import multiprocessing
import os
import pickle
import tempfile
import traceback

import torch
import torch._dynamo  # noqa: F401  else each rank imports it with its first DTensor: 0.7 s, more than most cases take
import torch.distributed as dist

HANG = 120  # seconds


def _member(rank, world, store, pipe, function, arguments, end_alone):
    os.environ.update(LOCAL_WORLD_SIZE=str(world), GLOO_SOCKET_IFNAME="lo")
    torch.set_num_threads(1)
    try:
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
        answer = (True, function(rank, world, *arguments))
        if not end_alone:
            dist.barrier()
            dist.destroy_process_group()
    except BaseException as problem:  # includes PyTorch's CheckpointException
        answer = (False, f"rank {rank}: {traceback.format_exc()}{problem!r}")
    pipe.send_bytes(pickle.dumps(answer))
    pipe.close()
    os._exit(0)  # threads of gloo may still exist


def run_ranks(world, function, *arguments, end_alone=False):
    """[function(rank, world, *arguments) of every rank]; raises AssertionError if a rank fails or hangs. With
    end_alone, a process ends with its function, whatever the others do."""
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory(prefix="shardmesh-ranks-") as folder:
        members = []
        for rank in range(world):
            ours, theirs = context.Pipe(duplex=False)
            process = context.Process(target=_member, args=(rank, world, f"{folder}/store", theirs, function, arguments, end_alone))
            process.start()
            theirs.close()
            members.append((process, ours))
        answers, failures = [], []
        for rank, (process, pipe) in enumerate(members):
            try:
                good, answer = pickle.loads(pipe.recv_bytes()) if pipe.poll(HANG) else (False, f"rank {rank} hangs")
            except EOFError:
                process.join()
                good, answer = False, f"rank {rank} ended with {process.exitcode}"
            (answers if good else failures).append(answer)
        for process, _ in members:
            process.join(1)
            process.kill()
        if failures:
            raise AssertionError("\n".join(failures))
        return answers
