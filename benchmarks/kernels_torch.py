# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of ./dev bench kernels: the cases of kernels_bench.cpp that PyTorch has a function for, on as many bytes,
timed --runs times, large ones with caches that hold other memory; one line of JSON per case. In a process of its own, as
Kokkos and PyTorch bring an OpenMP each.
Usage: kernels_torch.py [--threads N] [--runs N] [--only PREFIX] [--shrink N] [--cpu]"""
import argparse
import json
import math
import time

import torch

MIB = 1 << 20
COLD, OTHER = 64 * MIB, 256 * MIB  # as in kernels_bench.cpp


def mix(shrink):
    """The sizes of kernels_bench.cpp, in float32 numbers."""
    return [(int(2 ** (8 + 18 * (i * 61 % 150) / 149)) // shrink) // 4 | 1 for i in range(150)]


def filled(*shape, dtype=torch.float32):
    return torch.ones(shape, dtype=dtype)


def cases(shrink):
    """Yields (name, function to call, bytes read and written, function that makes its arguments)."""
    for kib in (64, 256, 1024, 16 << 10, 256 << 10):
        n = (kib << 10) // (shrink if kib > 1024 else 1) // 4
        yield f"contiguous {kib} KiB", "copy_", 8 * n, lambda n=n: (filled(n).copy_, filled(n))
    sizes = mix(shrink)
    total = sum(sizes)

    def split():
        out = [filled(n) for n in sizes]
        flat = filled(total)
        return lambda _: torch.split_with_sizes_copy(flat, sizes, out=out), None

    def cat():
        flat, parts = filled(total), [filled(n) for n in sizes]
        return lambda _: torch.cat(parts, out=flat), None
    yield "mix split", "split_with_sizes_copy", 8 * total, split
    yield "mix cat", "cat", 8 * total, cat
    every = 64 * MIB // shrink // 4
    for inner in (64, 256, 1024, 4096):
        n = inner // 4
        rows = every // n
        text = f" of {inner} B runs"
        yield "strided rank 2" + text, "copy_", 8 * every, lambda rows=rows, n=n: (
            filled(rows, n).copy_, filled(rows, 2 * n)[:, :n])
        yield "strided rank 3" + text, "copy_", 8 * every, lambda rows=rows, n=n: (
            filled(rows // 64, 128, n)[:, :64].copy_, filled(64, rows // 64, n).permute(1, 0, 2))
        yield "strided rank 4" + text, "copy_", 8 * every, lambda rows=rows, n=n: (
            filled(rows // 512, 8, 64, n).copy_, filled(rows // 512, 8, 96, n)[:, :, :64])
    edge = int(math.sqrt(every))
    yield "transpose float32", "copy_", 8 * edge * edge, lambda: (filled(edge, edge).copy_, filled(edge, edge).t())
    yield "transpose bfloat16", "copy_", 8 * edge * edge, lambda: (
        filled(edge, 2 * edge, dtype=torch.bfloat16).copy_, filled(2 * edge, edge, dtype=torch.bfloat16).t())
    tokens = every // 16 // 64
    yield "transpose of heads", "copy_", 4 * 32 * tokens * 128, lambda: (
        filled(32, tokens, 128, dtype=torch.bfloat16).copy_, filled(tokens, 32, 128, dtype=torch.bfloat16).permute(1, 0, 2))
    for to, source in ((torch.bfloat16, torch.float32), (torch.float32, torch.bfloat16), (torch.float16, torch.float32),
                       (torch.float8_e4m3fn, torch.float32)):
        name = f"cast {str(source)[6:]} to {str(to)[6:]}"
        yield name, "copy_", every * (source.itemsize + to.itemsize), lambda to=to, source=source: (
            filled(every, dtype=torch.float32).to(to).copy_, filled(every, dtype=source))
    yield "accumulate float32", "add_", 12 * every, lambda: (torch.zeros(every).add_, filled(every))
    yield "accumulate bfloat16", "add_", 12 * every, lambda: (
        torch.zeros(2 * every, dtype=torch.bfloat16).add_, filled(2 * every, dtype=torch.bfloat16))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--only", default="")
    parser.add_argument("--shrink", type=int, default=1)
    parser.add_argument("--cpu", action="store_true", help="CPU time of the process; with one thread")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    other = filled(OTHER // 4), filled(OTHER // 4)
    clock = time.process_time if given.cpu else time.perf_counter
    for name, function, moved, make in cases(given.shrink):
        if not name.startswith(given.only):
            continue
        act, argument = make()
        act(argument)
        begin = clock()
        act(argument)
        cold = moved > COLD
        repeat = 1 if cold else int(min(max(2e-3 / max(clock() - begin, 1e-7), 1), 20000))
        times = []
        for _ in range(given.runs):
            if cold:
                other[0].copy_(other[1])
            begin = clock()
            for _ in range(repeat):
                act(argument)
            times.append((clock() - begin) / repeat)
        print(json.dumps({"case": name, "function": function, "moved": moved, "torch": times}), flush=True)
        del act, argument


if __name__ == "__main__":
    main()
