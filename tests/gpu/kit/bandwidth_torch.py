# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of the bandwidth table (tests/gpu/bandwidth.cu), on as many bytes: one line of JSON for each case.

    bandwidth_torch.py DEVICE        cpu: small sizes, to test the program
"""
import json
import statistics
import sys
import time

import torch

CALLS, RUNS = 5, 11


def mix(shrink):
    """150 sizes of 256 B to 64 MiB in float32 numbers, distributed as in bandwidth.cu."""
    return [max(64, int(2 ** (8 + (18 if i >= 145 else 14) * (i * 61 % 150) / 149)) // shrink // 4) for i in range(150)]


def cases(device, shrink):
    """Yields (name, function, bytes read and written)."""
    def filled(*shape, dtype=torch.float32):
        return torch.ones(shape, device=device).to(dtype)

    big = (512 << 20) // shrink // 4
    a, b = filled(big), filled(big)
    yield "Tensor.copy_, contiguous, 512 MiB", lambda: a.copy_(b), 8 * big
    sizes = mix(shrink)
    total = sum(sizes)
    flat, parts = filled(total), [filled(n) for n in sizes]
    yield "split_with_sizes_copy, FSDP mix", lambda: torch.split_with_sizes_copy(flat, sizes, out=parts), 8 * total
    even = [filled(-(-n // 8) * 8) for n in sizes]
    into = filled(8, sum(t.numel() for t in even) // 8)
    yield "torch._chunk_cat in 8 chunks, FSDP mix", lambda: torch._chunk_cat(even, 0, 8, out=into), 8 * into.numel()
    every = (256 << 20) // shrink // 4
    for run in (64, 256, 1024, 4096):
        n = run // 4
        runs = every // n // 512 * 512
        sources = {2: filled(runs, 2, n)[:, 0], 3: filled(64, runs // 64 + 1, 2, n)[:, :-1, 0],
                   4: filled(64, 8, runs // 512 + 1, 2, n)[:, :, :-1, 0]}
        for rank, source in sources.items():
            target = torch.empty_like(source, memory_format=torch.contiguous_format)
            name = f"Tensor.copy_, rank {rank}, runs of {run} bytes"
            yield name, lambda t=target, s=source: t.copy_(s), 8 * source.numel()
    edge = 8192 if shrink == 1 else 256
    for dtype in (torch.float32, torch.bfloat16):
        square, turned = filled(edge, edge, dtype=dtype), filled(edge, edge, dtype=dtype)
        yield (f"Tensor.copy_, transpose of {edge} x {edge} {dtype}".replace("torch.", ""),
               lambda t=square, s=turned: t.copy_(s.t()), 2 * square.numel() * square.element_size())
    count = (64 << 20) // shrink
    for to, of in ((torch.bfloat16, torch.float32), (torch.float32, torch.bfloat16), (torch.float8_e4m3fn, torch.float32),
                   (torch.float8_e4m3fn, torch.bfloat16), (torch.bfloat16, torch.float8_e4m3fn),
                   (torch.float32, torch.float8_e5m2)):
        target, source = filled(count, dtype=to), filled(count, dtype=of)
        yield (f"Tensor.copy_, {of} to {to}".replace("torch.", ""), lambda t=target, s=source: t.copy_(s),
               count * (target.element_size() + source.element_size()))
    for of in (torch.float32, torch.bfloat16):
        target, source = filled(count), filled(count, dtype=of)
        name = f"float32 += {of}".replace("torch.", "")
        yield name, lambda t=target, s=source: t.add_(s), count * (8 + source.element_size())


def milliseconds(call, device):
    if device == "cpu":
        began = time.perf_counter()
        call()
        return 1e3 * (time.perf_counter() - began)
    for _ in range(3):
        call()
    times = []
    for _ in range(RUNS):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        begin.record()
        for _ in range(CALLS):
            call()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / CALLS)
    return statistics.median(times)


def main(device):
    for name, call, size in cases(device, 1 if device == "cuda" else 64):
        try:
            took = milliseconds(call, device)
        except RuntimeError as error:  # a function that this PyTorch lacks for a dtype
            print(json.dumps({"what": name, "reason": str(error).splitlines()[0]}), flush=True)
            continue
        print(json.dumps({"what": name, "gb_s": round(size / took * 1e-6, 1), "ms": round(took, 4)}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
