# SPDX-License-Identifier: Apache-2.0
"""shardmesh in PyTorch's place: reused readers, ids and places in descriptions, parent folders, URLs,
PyTorch options that shardmesh lacks, exceptions that PyTorch's callers catch, stream extensions."""
import os
import pickle
import shutil
import socket
import unittest.mock
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import common

common.need_torch()
import torch  # noqa: E402
import torch.distributed.checkpoint as torch_checkpoint  # noqa: E402
from torch.distributed.checkpoint import FileSystemReader, FileSystemWriter  # noqa: E402
from torch.distributed.checkpoint._extension import ExtensionRegistry  # noqa: E402
from torch.distributed.checkpoint.api import CheckpointException  # noqa: E402
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.tensor import DTensor, Shard  # noqa: E402

import shardmesh  # noqa: E402
import shardmesh.dcp  # noqa: E402
from rank_group import run_ranks  # noqa: E402
from shardmesh._parents import in_new_parents  # noqa: E402
from stream_extension import Turned  # noqa: E402

warnings.filterwarnings("ignore")


def tensor(value, size=6):
    return torch.full((size,), float(value))


def load_with(reader, size=6):
    state = {"w": torch.zeros(size), "epoch": 0}
    torch_checkpoint.load(state, storage_reader=reader)
    return state["w"][0].item(), state["epoch"]


class ReaderTest(common.WorkTest):
    def test_a_reader_that_is_used_again_reads_what_is_there(self):
        path = self.work / "saved"
        reader = shardmesh.dcp.StorageReader(path)

        def ours(value):
            shardmesh.save({"w": tensor(value), "epoch": value}, path, overwrite=True)

        def removed_and_saved(value):
            shutil.rmtree(path)
            torch_checkpoint.save({"w": tensor(value), "epoch": value}, checkpoint_id=path)

        def theirs_in_place(value):
            torch_checkpoint.save({"w": tensor(value), "epoch": value}, checkpoint_id=path)

        def other_layout(value):
            shutil.rmtree(path)
            shardmesh.save({"a": tensor(-1, 1000), "w": tensor(value), "epoch": value}, path)

        for value, save in enumerate((ours, ours, removed_and_saved, theirs_in_place, other_layout, ours), start=1):
            save(value)
            self.assertEqual(load_with(reader), (float(value), value), save.__name__)

    def test_a_link_that_moves(self):
        for step in (1, 2):
            shardmesh.save({"w": tensor(step), "epoch": step}, self.work / f"step-{step}")
        link = self.work / "latest"
        link.symlink_to("step-1")
        reader = shardmesh.dcp.StorageReader(link)
        self.assertEqual(load_with(reader), (1.0, 1))
        link.unlink()
        link.symlink_to("step-2")
        self.assertEqual(load_with(reader), (2.0, 2))

    def test_a_checkpoint_that_is_gone_is_an_error_of_a_reader_that_had_it(self):
        shardmesh.save({"w": tensor(1), "epoch": 1}, self.work / "saved")
        reader = shardmesh.dcp.StorageReader(self.work / "saved")
        load_with(reader)
        shutil.rmtree(self.work / "saved")
        with self.assertRaises(CheckpointException) as caught:
            load_with(reader)
        self.assertIsInstance(caught.exception.failures[0][0], shardmesh.Error)

    def test_ids_places_and_the_version(self):
        path = self.work / "saved"
        state = {"w": torch.arange(6.0).reshape(2, 3), "b": torch.ones(2), "epoch": 7}
        writer = shardmesh.dcp.StorageWriter(path)
        returned = torch_checkpoint.save(dict(state), storage_writer=writer)
        stored = pickle.loads((path / ".metadata").read_bytes())
        for metadata in (returned, stored):
            self.assertEqual(metadata.version, "1.0.0")
            self.assertEqual(metadata.storage_meta.save_id, writer.save_id)
            self.assertEqual(metadata.storage_meta.checkpoint_id, str(path))
            self.assertEqual(set(one.fqn for one in metadata.storage_data), {"w", "b", "epoch"})
        reader, theirs = shardmesh.dcp.StorageReader(path), FileSystemReader(path)
        ours, expected = reader.read_metadata(), theirs.read_metadata()
        self.assertEqual(ours.storage_meta.save_id, expected.storage_meta.save_id)
        self.assertEqual((ours.version, ours.storage_meta.load_id), (expected.version, reader.load_id))
        self.assertEqual(ours.storage_data, expected.storage_data)
        self.assertEqual({key: value.chunks for key, value in ours.state_dict_metadata.items() if hasattr(value, "chunks")},
                         {key: value.chunks for key, value in expected.state_dict_metadata.items() if hasattr(value, "chunks")})

    def test_ids_differ_from_save_to_save_and_from_load_to_load(self):
        ids = set()
        writer = shardmesh.dcp.StorageWriter(self.work / "a")
        for name in ("a", "b"):
            torch_checkpoint.save({"w": tensor(1)}, storage_writer=writer, checkpoint_id=self.work / name)
            ids.add(pickle.loads((self.work / name / ".metadata").read_bytes()).storage_meta.save_id)
        shardmesh.save({"w": tensor(1)}, self.work / "c")
        ids.add(pickle.loads((self.work / "c" / ".metadata").read_bytes()).storage_meta.save_id)
        self.assertEqual((len(ids), all(ids)), (3, True))
        reader = shardmesh.dcp.StorageReader(self.work / "c")
        loads = {reader.read_metadata().storage_meta.load_id}
        reader.reset()
        loads.add(reader.read_metadata().storage_meta.load_id)
        self.assertEqual(len(loads), 2)
        self.assertIn(reader.read_metadata().storage_meta.save_id, ids)
        shardmesh.convert(self.work / "c", self.work / "d", "dcp")  # the same save, in another folder
        self.assertIn(pickle.loads((self.work / "d" / ".metadata").read_bytes()).storage_meta.save_id, ids)

    def test_threads_load_different_checkpoints_with_one_reader(self):
        for step in range(4):
            shardmesh.save({"w": tensor(step), "epoch": step}, self.work / f"step-{step}")
        reader = shardmesh.dcp.StorageReader(self.work / "step-0")

        def load(step):
            found = []
            for _ in range(20):
                state = {"w": torch.zeros(6), "epoch": 0}
                torch_checkpoint.load(state, storage_reader=reader, checkpoint_id=self.work / f"step-{step}")
                found.append((state["w"][0].item(), state["epoch"], reader.path))
            return found

        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(load, range(4)))
        self.assertEqual(found, [[(float(step), step, str(self.work / f"step-{step}"))] * 20 for step in range(4)])
        reader.reset(self.work / "step-3")
        with ThreadPoolExecutor(1) as pool:  # a thread without a reset of its own
            self.assertEqual(pool.submit(load_with, reader).result(), (3.0, 3))

    def test_places_of_golden_checkpoints_are_those_that_are_stored(self):
        for name in ("fsdp2_4", "dtensor_2d_2x2", "nested_objects", "options_zstd", "sharded_tensor_chunk"):
            path = common.GOLDEN / name / "checkpoint"
            ours, theirs = (reader(path).read_metadata() for reader in (shardmesh.dcp.StorageReader, FileSystemReader))
            self.assertEqual(ours.storage_data, theirs.storage_data, name)
            self.assertEqual(ours.storage_meta.save_id, theirs.storage_meta.save_id, name)
            self.assertEqual(ours.version, theirs.version, name)


class DestinationTest(common.WorkTest):
    def test_missing_parent_folders_are_made(self):
        for number, save in enumerate((
                lambda path: shardmesh.dcp.save({"w": tensor(1)}, checkpoint_id=path),
                lambda path: torch_checkpoint.save({"w": tensor(1)}, storage_writer=shardmesh.dcp.StorageWriter(path)),
                lambda path: shardmesh.save({"w": tensor(1)}, path))):
            path = self.work / f"out{number}" / "checkpoints" / "step-1"
            save(path)
            self.assertTrue(torch.equal(shardmesh.load(path, "w"), tensor(1)))

    def test_a_save_that_fails_leaves_no_parent_folders(self):
        for save in (lambda path, state: shardmesh.dcp.save(state, checkpoint_id=path),
                     lambda path, state: shardmesh.save(state, path)):
            for state in ({"w": torch.ones(3).to_sparse()}, {"w": lambda: 1}):
                with self.assertRaises(shardmesh.Error):
                    save(self.work / "a" / "b" / "c", state)
                self.assertEqual(self.left_in_work(), [])

    def test_parents_that_a_failing_save_removes_are_made_again(self):
        path, calls = self.work / "a" / "b" / "saved", []

        def work():
            calls.append(path.parent.is_dir())
            if len(calls) < 3:
                os.rmdir(path.parent)  # as another save does that has created it
                os.rmdir(path.parent.parent)
                raise shardmesh.Error("io", "no such folder")
            path.mkdir()
            return 7

        made, parents = in_new_parents(str(path), work)
        self.assertEqual((made, calls, path.is_dir()), (7, [True] * 3, True))
        self.assertEqual(parents, [str(path.parent.parent), str(path.parent)])

    def test_saves_that_fail_beside_one_that_does_not(self):
        def bad(number):
            for save in (lambda path, state: shardmesh.dcp.save(state, checkpoint_id=path, no_dist=True),
                         lambda path, state: shardmesh.save(state, path)):
                with self.assertRaises(shardmesh.Error):
                    save(self.work / "a" / "b" / "c" / f"bad-{number}", {"f": lambda: 1})

        def good(number):
            path = self.work / "a" / "b" / "c" / f"good-{number}"
            shardmesh.dcp.save({"w": tensor(number)}, checkpoint_id=path, no_dist=True)
            return shardmesh.verify(path).ok

        with ThreadPoolExecutor(4) as pool:
            for number in range(100 if common.long_runs() else 30):
                failing = [pool.submit(bad, one) for one in range(3)]
                self.assertTrue(pool.submit(good, number).result())
                for one in failing:
                    one.result()
                self.assertEqual(os.listdir(self.work / "a" / "b" / "c"), [f"good-{number}"])
                shutil.rmtree(self.work / "a")

    def test_parents_that_cannot_be_made_are_named(self):
        (self.work / "file").write_bytes(b"")
        for call in (lambda path: shardmesh.save({"w": tensor(1)}, path),
                     lambda path: shardmesh.dcp.save({"w": tensor(1)}, checkpoint_id=path)):
            with self.assertRaises(shardmesh.Error) as caught:
                call(self.work / "file" / "below" / "x")
            self.assertIn(str(self.work / "file"), caught.exception.path)
            self.assertEqual(caught.exception.code, "io")

    def test_urls_are_no_destinations_of_the_storage_writer(self):
        os.chdir(self.work)
        for url in ("abc://x", "s3://bucket/run/step-1", "gs://bucket/run", "hf://user/model", "https://host/x.safetensors"):
            for call in (lambda: shardmesh.dcp.StorageWriter(url),
                         lambda: shardmesh.dcp.save({"w": tensor(1)}, checkpoint_id=url)):
                with self.assertRaises(shardmesh.Error) as caught:
                    call()
                self.assertEqual((caught.exception.code, caught.exception.path), ("unsupported", url))
                self.assertIn("URL", str(caught.exception))
            self.assertFalse(shardmesh.dcp.StorageWriter.validate_checkpoint_id(url))
            self.assertTrue(shardmesh.dcp.StorageReader.validate_checkpoint_id(url))
        self.assertEqual(self.left_in_work(), [])

    def test_urls_of_an_unknown_scheme_are_not_written(self):
        os.chdir(self.work)
        for call in (lambda: shardmesh.save({"w": tensor(1)}, "abc://x"),
                     lambda: shardmesh.convert(common.GOLDEN / "single_rank" / "checkpoint", "abc://x", "dcp")):
            with self.assertRaises(shardmesh.Error) as caught:
                call()
            self.assertEqual((caught.exception.code, caught.exception.path), ("unsupported", "abc://x"))
            self.assertIn('"abc"', str(caught.exception))
        self.assertEqual(self.left_in_work(), [])

    def test_destinations_that_are_only_read_are_refused_before_any_request(self):
        os.chdir(self.work)
        source = common.GOLDEN / "single_rank" / "checkpoint"
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.setblocking(False)
            web = f"http://127.0.0.1:{listener.getsockname()[1]}"
            with unittest.mock.patch.dict(os.environ, HF_ENDPOINT=web, no_proxy="127.0.0.1"):
                for url in (f"{web}/x", f"{web.replace('http', 'https')}/x", "hf://user/model/x"):
                    for call in (lambda: shardmesh.save({"w": tensor(1)}, url),
                                 lambda: shardmesh.convert(source, url, "dcp"),
                                 lambda: shardmesh.reshard(source, url, like=source)):
                        with self.assertRaises(shardmesh.Error) as caught:
                            call()
                        self.assertEqual((caught.exception.code, caught.exception.path), ("unsupported", url))
            with self.assertRaises(BlockingIOError):  # nothing has connected
                listener.accept()
        self.assertEqual(self.left_in_work(), [])

    def test_urls_of_an_unknown_scheme_are_not_read(self):
        os.chdir(self.work)
        url = "abc://x/y"
        for call in (lambda: shardmesh.open(url), lambda: shardmesh.load(url, "w"),
                     lambda: shardmesh.dcp.load({"w": torch.zeros(2)}, checkpoint_id=url)):
            with self.assertRaises(shardmesh.Error) as caught:
                call()
            self.assertEqual((caught.exception.code, caught.exception.path), ("unsupported", url))
            self.assertIn('"abc"', str(caught.exception))

    def test_a_url_that_pathlib_shortened_is_named(self):
        os.chdir(self.work)
        there = common.GOLDEN / "single_rank" / "checkpoint"
        state = {"w": tensor(1)}
        urls = ("s3://bucket/run/step-1", "S3://bucket/x", "gs://bucket/x", "hf://user/model", "https://host/x", "abc://x/y",
                "file:///tmp/x")
        for url in (*map(Path, urls), "s3:/bucket/x", "HTTPS:/host/x", b"gs:/bucket/x"):
            place, message = os.fsdecode(url), "looks like a URL with one slash"
            if isinstance(url, Path):
                place = place.replace("file:/", "file://").replace(":/", "://")
                message = "is a URL that pathlib has shortened"
            for call in (lambda: shardmesh.open(url), lambda: shardmesh.save(state, url),
                         lambda: shardmesh.save(state, self.work / "x", previous=url),
                         lambda: shardmesh.convert(there, url, "dcp"), lambda: shardmesh.reshard(there, url, like=there),
                         lambda: shardmesh.save_delta(there, there, url),
                         lambda: shardmesh.Run(url), lambda: shardmesh.Run(url, read_only=True),
                         lambda: shardmesh.dcp.StorageReader(url), lambda: shardmesh.dcp.StorageWriter(url),
                         lambda: shardmesh.dcp.save(state, checkpoint_id=url),
                         lambda: shardmesh.dcp.async_save(state, checkpoint_id=url),
                         lambda: shardmesh.dcp.load(state, checkpoint_id=url)):
                with self.assertRaises(shardmesh.Error) as caught:
                    call()
                self.assertEqual((caught.exception.code, caught.exception.message, caught.exception.path),
                                 ("invalid_argument", message, place), url)
            self.assertFalse(shardmesh.dcp.StorageWriter.validate_checkpoint_id(url))
        self.assertEqual(self.left_in_work(), [])

    def test_secrets_of_a_shortened_url_are_not_shown(self):
        with self.assertRaises(shardmesh.Error) as caught:
            shardmesh.open(Path("https://user:secret@host/x?token=secret"))
        self.assertNotIn("secret", str(caught.exception))

    def test_a_local_folder_with_a_colon_is_a_path(self):
        os.chdir(self.work)
        shardmesh.save({"w": tensor(3)}, self.work / "abc:" / "x")
        self.assertEqual(shardmesh.load(Path("abc:/x"), "w")[0].item(), 3.0)
        shardmesh.dcp.save({"w": tensor(4)}, checkpoint_id="abc:/y")
        self.assertEqual(sorted(os.listdir("abc:")), ["x", "y"])

    def test_a_null_character_in_a_file_url_is_refused(self):
        url = f"file://{self.work}/saved%00x"
        state = {"w": tensor(1)}
        shardmesh.save({"w": tensor(5)}, self.work / "saved")
        for call in (lambda: shardmesh.open(url), lambda: shardmesh.save(state, url, overwrite=True),
                     lambda: shardmesh.convert(self.work / "saved", url, "dcp", overwrite=True),
                     lambda: shardmesh.Run(url), lambda: shardmesh.dcp.StorageReader(url),
                     lambda: shardmesh.dcp.save(state, checkpoint_id=url, overwrite=True)):
            with self.assertRaises(shardmesh.Error) as caught:
                call()
            self.assertEqual((caught.exception.code, caught.exception.expected),
                             ("invalid_argument", "a path without a null character"))
        self.assertEqual(self.left_in_work(), ["saved"])
        self.assertEqual(shardmesh.load(self.work / "saved", "w")[0].item(), 5.0)

    def test_the_short_form_of_a_file_url_is_a_path(self):
        os.chdir(self.work)
        for number, scheme in enumerate(("file", "FILE")):
            url = f"{scheme}:{self.work}/a%20folder/saved{number}"
            shardmesh.dcp.save({"w": tensor(4)}, checkpoint_id=url)
            self.assertEqual(shardmesh.load(url, "w")[0].item(), 4.0)
        self.assertEqual(self.left_in_work(), ["a folder"])
        self.assertEqual(sorted(os.listdir("a folder")), ["saved0", "saved1"])

    def test_file_urls_are_paths(self):
        url = f"file://{self.work}/a%20folder/saved"
        shardmesh.dcp.save({"w": tensor(4)}, checkpoint_id=url)
        self.assertTrue((self.work / "a folder" / "saved" / ".metadata").exists())
        state = {"w": torch.zeros(6)}
        shardmesh.dcp.load(state, checkpoint_id=url)
        self.assertEqual(state["w"][0].item(), 4.0)
        self.assertTrue(shardmesh.verify(url).ok)
        self.assertTrue(shardmesh.dcp.StorageReader.validate_checkpoint_id(url))
        for value in (5, None, object(), "a\0b"):
            self.assertFalse(shardmesh.dcp.StorageReader.validate_checkpoint_id(value))

    def test_validate_checkpoint_id_is_asked(self):
        class Only(shardmesh.dcp.StorageReader):
            @classmethod
            def validate_checkpoint_id(cls, checkpoint_id):
                return "allowed" in str(checkpoint_id)

        with self.assertRaises(shardmesh.Error):
            Only(self.work / "other")
        reader = Only(self.work / "allowed")
        with self.assertRaises(shardmesh.Error):
            reader.reset(self.work / "other")
        self.assertEqual(reader.path, str(self.work / "allowed"))


def alone(rank, world, work):
    """no_dist: each rank saves and loads its own folder, without the others."""
    path = f"{work}/of-{rank}"
    if rank == 1:
        shardmesh.dcp.save({"w": tensor(rank)}, checkpoint_id=path, no_dist=True)
        state = {"w": torch.zeros(6)}
        shardmesh.dcp.load(state, checkpoint_id=path, no_dist=True)
        return state["w"][0].item()
    return 1.0


def in_background(rank, world, path):
    state = {"w": torch.full((4,), float(rank)), f"of{rank}": torch.ones(2)}
    future = shardmesh.dcp.async_save({f"v{rank}": state["w"], "all": torch.arange(3.0)}, checkpoint_id=path)
    state["w"].fill_(-1)  # the save has its own copy
    metadata = future.result(60)
    loaded = {f"v{rank}": torch.zeros(4), "all": torch.zeros(3)}
    shardmesh.dcp.load(loaded, checkpoint_id=path)
    again = shardmesh.dcp.async_save({"w": tensor(1)}, checkpoint_id=path)
    problem = again.exception(60)
    return (metadata.version, loaded[f"v{rank}"].tolist(), loaded["all"].tolist(), type(problem).__name__, problem.code,
            isinstance(problem, CheckpointException))


def marked_in_background(rank, world, work):
    """Returns the names of wrong values."""
    base = torch.tensor([1 + 2j, 3 - 4j])
    mesh = init_device_mesh("cpu", (world,))
    state = {"conjugate": base.conj(), "negative": base.conj().imag, "list": [base.conj(), {"w": base.conj().imag}],
             "tuple": (base.conj(), "text"), "sharded": DTensor.from_local(base.conj(), mesh, [Shard(0)])}
    wrong = []
    for name, stager in (("own", None), ("theirs", DefaultStager(StagingOptions(False, False, False, False)))):
        path = f"{work}/{name}"
        shardmesh.dcp.async_save(dict(state), checkpoint_id=path, async_stager=stager).result(60)
        expected = {"conjugate": base.conj(), "negative": base.conj().imag, "list.0": base.conj(),
                    "list.1.w": base.conj().imag, "sharded": torch.cat([base.conj()] * world)}
        wrong += [f"{name}: {key}" for key, value in expected.items()
                  if not torch.equal(shardmesh.load(path, key), value)]
        wrong += [f"{name}: tuple"] * (not torch.equal(shardmesh.load(path, "tuple")[0], base.conj()))
    wrong += ["the state"] * (not state["conjugate"].is_conj())
    return wrong


class OptionsTest(common.WorkTest):
    def test_no_dist(self):
        self.assertEqual(run_ranks(2, alone, str(self.work)), [1.0, 1.0])
        self.assertEqual(self.left_in_work(), ["of-1"])

    def test_async_save(self):
        expected = ("1.0.0", [0.0] * 4, [0.0, 1.0, 2.0], "CheckpointError", "destination_exists", True)
        answers = run_ranks(2, in_background, str(self.work / "saved"))
        self.assertEqual(answers[0], expected)
        self.assertEqual(answers[1], (*expected[:1], [1.0] * 4, *expected[2:]))

    def test_async_save_writes_the_values_of_conjugates_and_negatives(self):
        """Both are marks on a tensor. PyTorch's stager copies the memory, and loses the marks."""
        self.assertEqual(run_ranks(2, marked_in_background, str(self.work)), [[], []])

    def test_what_pytorchs_writer_has_is_taken_or_refused_by_name(self):
        made = shardmesh.dcp.StorageWriter(self.work / "a", thread_count=3, single_file_per_rank=True, sync_files=True,
                                           cache_staged_state_dict=False, _extensions=None)
        torch_checkpoint.save({"w": tensor(1)}, storage_writer=made)
        for name, value in (("single_file_per_rank", False), ("sync_files", False), ("per_thread_copy_ahead", 1),
                            ("cache_staged_state_dict", True), ("_extensions", [object()]),
                            ("serialization_format", "safetensors")):
            with self.assertRaises(shardmesh.Error) as caught:
                shardmesh.dcp.StorageWriter(self.work / "b", **{name: value})
            self.assertEqual(caught.exception.code, "unsupported")
            self.assertIn(name, str(caught.exception))
            self.assertTrue(caught.exception.hint)
        for save in (lambda: shardmesh.dcp.save({"w": tensor(1)}, checkpoint_id=self.work / "b", use_collectives=False),
                     lambda: shardmesh.dcp.async_save({"w": tensor(1)}, checkpoint_id=self.work / "b", use_collectives=False)):
            with self.assertRaises(shardmesh.Error) as caught:
                save()
            self.assertIn("use_collectives", str(caught.exception))
        self.assertEqual(self.left_in_work(), ["a"])

    def test_quantized_tensors_are_refused_by_name(self):
        value = torch.quantize_per_tensor(torch.ones(3), 0.5, 0, torch.qint8)
        with self.assertRaises(shardmesh.Error) as caught:
            shardmesh.dcp.save({"q": value}, checkpoint_id=self.work / "a")
        self.assertEqual((caught.exception.code, caught.exception.key), ("unsupported", "q"))
        self.assertIn("int_repr", str(caught.exception))

    def test_exceptions_that_pytorchs_callers_catch(self):
        for call in (lambda: shardmesh.dcp.load({"w": torch.zeros(2)}, checkpoint_id=self.work / "nothing"),
                     lambda: shardmesh.dcp.save({"w": torch.ones(3).to_sparse()}, checkpoint_id=self.work / "a"),
                     lambda: shardmesh.dcp.load({"w": torch.zeros(2)}, checkpoint_id="abc://x/y")):
            with self.assertRaises(CheckpointException) as caught:
                call()
            problem = caught.exception
            self.assertIsInstance(problem, shardmesh.Error)
            self.assertIsInstance(problem.failures[0][0], shardmesh.Error)
            again = pickle.loads(pickle.dumps(problem))
            self.assertEqual((str(again), again.code, again.path), (str(problem), problem.code, problem.path))
            self.assertEqual(list(again.failures), [0])


class ExtensionTest(common.WorkTest):
    def test_items_are_read_through_extensions_that_the_caller_registers(self):
        path = self.work / "saved"
        state = {"w": torch.arange(12.0).reshape(3, 4), "b": torch.ones(2, dtype=torch.int32), "epoch": {"n": 7}}
        torch_checkpoint.save(dict(state), storage_writer=FileSystemWriter(path, _extensions=[Turned()]))
        registry = ExtensionRegistry()
        registry.register(Turned)
        for load in (lambda into: torch_checkpoint.load(into, storage_reader=shardmesh.dcp.StorageReader(path, extension_registry=registry)),
                     lambda into: shardmesh.dcp.load(into, checkpoint_id=path, extension_registry=registry)):
            into = {"w": torch.zeros(3, 4), "b": torch.zeros(2, dtype=torch.int32), "epoch": {"n": 0}}
            load(into)
            self.assertTrue(torch.equal(into["w"], state["w"]) and torch.equal(into["b"], state["b"]))
            self.assertEqual(into["epoch"], {"n": 7})
        with self.assertRaises(shardmesh.Error) as caught:
            shardmesh.dcp.load({"w": torch.zeros(3, 4)}, checkpoint_id=path)
        self.assertIn("stream.turned/1", str(caught.exception))
        with self.assertRaises(shardmesh.Error) as caught:
            shardmesh.dcp.load({"w": torch.zeros(3, 4)}, checkpoint_id=path, extension_registry=ExtensionRegistry())
        self.assertIn("stream.turned/1", str(caught.exception))


if __name__ == "__main__":
    common.main()
