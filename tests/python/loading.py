# SPDX-License-Identifier: Apache-2.0
"""start_load reports every key once, when its values are there. Loads end complete, by the caller's exception,
cancelled, by Ctrl-C, or with the program."""
import itertools
import json
import math
import os
import pickle
import random
import resource
import shutil
import struct
import subprocess
import sys
import threading
import time

import common

common.need_torch()
import torch  # noqa: E402
from torch.distributed.checkpoint.filesystem import _StorageInfo  # noqa: E402
from torch.distributed.checkpoint.metadata import (  # noqa: E402
    ChunkStorageMetadata, Metadata, MetadataIndex, TensorProperties, TensorStorageMetadata)

import shardmesh  # noqa: E402
from common import GOLDEN, raw  # noqa: E402

CHILD = """
import os, signal, sys, threading, torch, shardmesh
checkpoint = shardmesh.open(sys.argv[1])
state = {entry.key: torch.empty(entry.shape) for entry in checkpoint.tensors}
waiting, interrupted = threading.Event(), threading.Event()
def arrived(key):
    if sys.argv[2] == "interrupt" and not interrupted.is_set():
        waiting.wait(60)
        os.kill(os.getpid(), signal.SIGINT)
        interrupted.wait(60)
    print(key, state[key].sum().item(), flush=True)
loading = checkpoint.start_load(state, on_arrival=arrived)
if sys.argv[2] == "interrupt":
    try:
        waiting.set()
        loading.wait()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        interrupted.set()
    loading.wait()
"""


def dcp_folder(path, shape, boxes):
    """A DCP folder of one tensor, "w", whose chunks are these boxes: (offsets, sizes), with the values of `arange`."""
    whole = torch.arange(float(math.prod(shape))).reshape(shape)
    path.mkdir()
    places, chunks = {}, []
    with open(path / "__0_0.distcp", "wb") as file:
        for number, (offsets, sizes) in enumerate(boxes):
            begin = file.tell()
            torch.save(whole[slices(offsets, sizes)].clone(), file)
            places[MetadataIndex("w", torch.Size(offsets), number)] = _StorageInfo("__0_0.distcp", begin, file.tell() - begin)
            chunks.append(ChunkStorageMetadata(torch.Size(offsets), torch.Size(sizes)))
    tensor = TensorStorageMetadata(TensorProperties(torch.float32), torch.Size(shape), chunks)
    metadata = Metadata({"w": tensor}, planner_data={"w": ("w",)}, storage_data=places)
    (path / ".metadata").write_bytes(pickle.dumps(metadata))
    return whole


def slices(offsets, sizes):
    return tuple(slice(begin, begin + size) for begin, size in zip(offsets, sizes))


def random_boxes(dice, shape):
    """Boxes that cover a tensor once, or with one of them moved, left out, or stored twice."""
    cuts = [sorted({0, size, *(dice.randrange(size + 1) for _ in range(2))}) for size in shape]
    boxes = [(offsets, tuple(end - begin for begin, end in zip(offsets, ends)))
             for offsets, ends in zip(itertools.product(*(one[:-1] for one in cuts)),
                                      itertools.product(*(one[1:] for one in cuts)))]
    change = dice.choice(("none", "moved", "moved", "left out", "twice"))
    chosen = dice.randrange(len(boxes))
    if change == "moved":
        sizes = boxes[chosen][1]
        offsets = tuple(dice.randrange(whole - size + 1) for whole, size in zip(shape, sizes))
        if all(offsets != other for other, _ in boxes):  # DCP knows a chunk by its offsets
            boxes[chosen] = (offsets, sizes)
    elif change == "left out" and len(boxes) > 1:
        del boxes[chosen]
    elif change == "twice":
        boxes.append(boxes[chosen])
    return boxes


class LoadingTest(common.WorkTest):
    def test_a_box_loads_if_distinct_chunks_hold_each_of_its_elements_once(self):
        dice = random.Random(common.seed())
        for number in range(600 if common.long_runs() else 60):
            shape = tuple(dice.randrange(1, 6) for _ in range(dice.choice((1, 2, 2, 3))))
            boxes = random_boxes(dice, shape)
            path = self.work / f"boxes{number}"
            whole = dcp_folder(path, shape, boxes)
            held = torch.zeros(shape)
            for offsets, sizes in set(boxes):
                held[slices(offsets, sizes)] += 1
            checkpoint = shardmesh.open(path)
            ends = [dice.randrange(1, size + 1) for size in shape]
            begins = [dice.randrange(end) for end in ends]
            for wanted in (tuple(slice(0, size) for size in shape), tuple(map(slice, begins, ends))):
                with self.subTest(f"SHARDMESH_SEED={common.seed()}: {shape} of {boxes}, {wanted}"):
                    if bool((held[wanted] == 1).all()):
                        self.assertTrue(torch.equal(checkpoint["w"][wanted], whole[wanted]))
                    else:
                        with self.assertRaises(shardmesh.Error) as raised:
                            checkpoint["w"][wanted]
                        self.assertIn(raised.exception.code, ("gap", "overlap"))
                        self.assertEqual(raised.exception.key, "w")
            state = {"w": torch.full(shape, -1.0)}
            if bool((held == 1).all()):
                checkpoint.load_into(state)
                self.assertTrue(torch.equal(state["w"], whole))
            else:
                self.assertFalse(shardmesh.verify(path).ok)
                with self.assertRaises(shardmesh.Error):
                    checkpoint.load_into(state)
            shutil.rmtree(path)

    def saved(self, format="dcp"):
        path = self.work / ("state." + format)
        state = {f"t{i}": torch.arange(15.0).reshape(5, 3) + 100 * i for i in range(6)}
        shardmesh.save(state, path, format)
        return path, state

    def test_every_key_of_every_format_arrives_once_and_holds_its_values_then(self):
        for format in ("dcp", "safetensors", "hf", "pt", "torch-checkpointing"):
            path, state = self.saved(format)
            into = {key: torch.full((5, 3), -1.0, dtype=torch.float64) for key in state}
            told = []
            with shardmesh.open(path).start_load(into, check=True, on_arrival=told.append) as loading:
                keys = []
                for key in loading:
                    self.assertTrue(torch.equal(into[key], state[key].double()), key)
                    keys.append(key)
            self.assertEqual(sorted(keys), sorted(state))
            self.assertEqual(told, keys)
            self.assertEqual(list(loading), [])  # a second iteration yields nothing
            self.assertTrue(loading.done() and loading.wait(0))
            self.assertEqual(loading.bytes, 6 * 15 * 8)

    def test_golden_checkpoints_arrive_as_load_gives_them(self):
        compared = 0
        for name in ("fsdp2_tp_2x2", "dtypes", "hf_sharded", "options_zstd"):
            checkpoint = shardmesh.open(GOLDEN / name / "checkpoint")
            wanted = [entry for entry in checkpoint.tensors
                      if not entry.foreign_type and isinstance(getattr(torch, entry.dtype, None), torch.dtype)]
            into = {entry.key: torch.empty(entry.shape, dtype=getattr(torch, entry.dtype)) for entry in wanted}
            for key in checkpoint.start_load(into):
                self.assertEqual(raw(into[key]), raw(checkpoint.load(key)), key)
                compared += 1
        self.assertGreater(compared, 50)

    def test_a_key_of_which_several_boxes_are_wanted_arrives_once_with_all_of_them(self):
        path, state = self.saved()
        upper, lower, other = torch.empty(2, 3), torch.empty(3, 3), torch.empty(5, 3)
        wanted = [("t1", ((0, 0), (2, 3)), upper), ("t3", None, other), ("t1", ((2, 0), (3, 3)), lower)]
        self.assertEqual(list(shardmesh.open(path).start_load(wanted)), ["t1", "t3"])
        self.assertTrue(torch.equal(torch.cat([upper, lower]), state["t1"]) and torch.equal(other, state["t3"]))

    def test_nothing_wanted_is_nothing(self):
        path, _ = self.saved()
        self.assertEqual(list(shardmesh.open(path).start_load({})), [])

    def test_autograd_knows_of_what_arrived(self):
        path, _ = self.saved()
        into = torch.zeros(5, 3)
        before = into._version
        shardmesh.open(path).start_load({"t0": into}).wait()
        self.assertGreater(into._version, before)

    def test_what_on_arrival_raises_ends_the_load_and_is_the_callers(self):
        path, state = self.saved()
        for at in (0, 5):  # also at the last key
            told, into = [], {key: torch.empty(5, 3) for key in state}

            def arrived(key):
                told.append(key)
                if len(told) == at + 1:
                    raise ZeroDivisionError(key)

            loading = shardmesh.open(path).start_load(into, on_arrival=arrived)
            for _ in range(2):
                with self.assertRaises(ZeroDivisionError) as caught:
                    loading.wait()
            self.assertEqual((str(caught.exception), len(told)), (told[at], at + 1))
            seen = []
            with self.assertRaises(ZeroDivisionError):
                for key in loading:
                    seen.append(key)
            self.assertEqual(seen, told[:at])

    def test_what_progress_raises_ends_the_load_and_the_last_word_is_the_whole(self):
        path, state = self.saved()
        said, into = [], {key: torch.empty(5, 3) for key in state}
        shardmesh.open(path).start_load(into, progress=lambda done, total: said.append((done, total))).wait()
        self.assertEqual(said[-1], (360, 360))
        with self.assertRaises(ZeroDivisionError):
            shardmesh.open(path).start_load(into, progress=lambda done, total: 1 / 0).wait()

    def test_another_thread_cancels(self):
        path, state = self.saved()
        begun, told = threading.Event(), []
        cancelled = threading.Event()

        def arrived(key):
            told.append(key)
            begun.set()
            cancelled.wait(60)

        loading = shardmesh.open(path).start_load({key: torch.empty(5, 3) for key in state}, on_arrival=arrived)

        def cancel():
            begun.wait(60)
            loading.cancel()
            cancelled.set()

        thread = threading.Thread(target=cancel)
        thread.start()
        with self.assertRaises(shardmesh.Error) as caught:
            loading.wait()
        thread.join()
        self.assertEqual((caught.exception.code, len(told)), ("cancelled", 1))
        self.assertTrue(loading.done())
        loading.cancel()

    def test_wait_gives_up_when_its_time_is_over(self):
        path, state = self.saved()
        go = threading.Event()
        loading = shardmesh.open(path).start_load({"t0": torch.empty(5, 3)}, on_arrival=lambda key: go.wait(60))
        self.assertFalse(loading.wait(0.01))
        self.assertFalse(loading.done())
        go.set()
        self.assertTrue(loading.wait())

    def test_a_callback_cannot_wait_for_its_own_load(self):
        path, _ = self.saved()
        for wait in (lambda loading: loading.wait(), lambda loading: loading.wait(60), list):
            made, handed = [], threading.Event()

            def arrived(key):
                handed.wait(60)
                wait(made[0])

            made.append(shardmesh.open(path).start_load({"t0": torch.empty(5, 3)}, on_arrival=arrived))
            handed.set()
            with self.assertRaisesRegex(shardmesh.Error, "would wait for itself"):
                made[0].wait()

    def test_progress_cannot_wait_for_its_own_load_either(self):
        path, _ = self.saved()
        made, handed = [], threading.Event()

        def progress(done, total):
            handed.wait(60)
            made[0].wait()

        made.append(shardmesh.open(path).start_load({"t0": torch.empty(5, 3)}, progress=progress))
        handed.set()
        with self.assertRaisesRegex(shardmesh.Error, "would wait for itself"):
            made[0].wait()

    def test_a_block_that_is_left_by_an_exception_cancels_and_waits(self):
        path, state = self.saved()
        told, begun = [], []

        def arrived(key):
            told.append(key)
            while not begun or not begun[0]._is_cancelled:
                time.sleep(0.001)

        with self.assertRaises(ZeroDivisionError):
            with shardmesh.open(path).start_load({key: torch.empty(5, 3) for key in state},
                                                 on_arrival=arrived) as loading:
                begun.append(loading)
                raise ZeroDivisionError
        self.assertTrue(loading.done())
        self.assertLess(len(told), 2)

    def test_errors_of_tensors_are_raised_at_once_and_those_of_reading_by_wait(self):
        path, state = self.saved()
        checkpoint = shardmesh.open(path)
        with self.assertRaises(shardmesh.Error) as caught:
            checkpoint.start_load({"t0": torch.empty(5, 4)})
        self.assertEqual((caught.exception.code, caught.exception.key), ("shape_mismatch", "t0"))
        for wanted, code, key in (({"t9": torch.empty(5, 3)}, "missing_key", "t9"),
                                  ({"t1": torch.empty(5, 3, dtype=torch.float16)}, "narrowing", "t1")):
            loading = checkpoint.start_load(wanted)
            with self.assertRaises(shardmesh.Error) as caught:
                loading.wait()
            self.assertEqual((caught.exception.code, caught.exception.key), (code, key))

    def test_check_finds_a_byte_that_changed(self):
        path, state = self.saved()
        [chunk] = shardmesh.open(path)["t4"].chunks
        file = path / chunk.file
        data = bytearray(file.read_bytes())
        at = data.index(raw(state["t4"]))
        data[at + 7] ^= 1
        file.write_bytes(data)
        into = {key: torch.empty(5, 3) for key in state}
        arrived = list(shardmesh.open(path).start_load(into))
        self.assertEqual(len(arrived), 6)
        checkpoint = shardmesh.open(path)
        for load in (lambda: checkpoint.start_load(into, check=True).wait(),
                     lambda: checkpoint.load_into(into, check=True)):
            with self.assertRaises(shardmesh.Error) as caught:
                load()
            self.assertEqual((caught.exception.code, caught.exception.key), ("checksum_mismatch", "t4"))

    def child(self, what):
        path, state = self.saved()
        done = subprocess.run([sys.executable, "-c", CHILD, path, what], capture_output=True, text=True, timeout=100,
                              env=os.environ)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout.splitlines(), [f"{key} {state[key].sum().item()}" for key in state]

    def test_a_program_that_ends_waits_for_its_loads(self):
        lines, expected = self.child("end")
        self.assertEqual(lines, expected)

    def test_ctrl_c_ends_the_waiting_and_not_the_load(self):
        lines, expected = self.child("interrupt")
        self.assertEqual(lines, ["interrupted", *expected])


class SizeTest(common.WorkTest):
    """Tensors that a file declares and no machine has memory for."""

    def declared(self, name, shape, size):
        path = self.work / f"{name}.safetensors"
        header = json.dumps({"w": {"dtype": "F32", "shape": shape, "data_offsets": [0, size]}}).encode()
        with open(path, "wb") as file:
            file.write(struct.pack("<Q", len(header)) + header)
            file.truncate(8 + len(header) + size)  # a hole
        return path

    def refused(self, code, call):
        with self.assertRaises(shardmesh.Error) as caught:
            call()
        self.assertEqual((caught.exception.code, caught.exception.key), (code, "w"), str(caught.exception))

    def test_a_tensor_that_exceeds_the_memory_is_an_error_with_its_size(self):
        path, count = self.declared("large", [1 << 40], 1 << 42), 1 << 40
        self.assertEqual(shardmesh.load(path, "w", ((count - 2,), (2,))).tolist(), [0.0, 0.0])
        limits = resource.getrlimit(resource.RLIMIT_AS)
        self.addCleanup(resource.setrlimit, resource.RLIMIT_AS, limits)
        resource.setrlimit(resource.RLIMIT_AS, (1 << 41, limits[1]))  # the system may promise more than it has
        for call in (lambda: shardmesh.load(path, "w"), lambda: shardmesh.open(path).load("w", ((0,), (count,))),
                     lambda: shardmesh.open(path)["w"].load(), lambda: shardmesh.open(path)["w"][...]):
            self.refused("no_memory", call)
        with self.assertRaisesRegex(shardmesh.Error, f"expected {1 << 42} bytes"):
            shardmesh.load(path, "w")

    def test_strides_that_overflow_are_an_error(self):
        path = self.declared("empty", [2**62, 2**62, 0], 0)
        for call in (lambda: shardmesh.open(path).map_tensor("w").numpy(), lambda: shardmesh.open(path).map_tensor("w").torch(),
                     lambda: shardmesh.load(path, "w")):
            with self.assertRaises(shardmesh.Error):
                call()
        path = self.declared("long", [2**62, 3, 0], 0)
        self.refused("overflow", lambda: shardmesh.open(path).map_tensor("w").numpy())


if __name__ == "__main__":
    common.main()
