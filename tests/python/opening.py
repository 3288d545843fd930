# SPDX-License-Identifier: Apache-2.0
"""Options of open, convert, and save: some keys only, all parts of a folder, dequantized weights; folders of
torch_checkpointing, components, other shapes. Expected values are from the command line and the committed samples."""
import hashlib
import json
import shutil
import struct
import subprocess
from pathlib import Path

import common

common.need_torch()
import torch  # noqa: E402

import shardmesh  # noqa: E402
from common import DATA, GOLDEN, raw  # noqa: E402

TOOL = Path(shardmesh.__file__).parent / "bin" / "shardmesh"
FOLDER = GOLDEN / "fsdp2_tp_2x2" / "checkpoint"
WRITERS = DATA / "writers"
QUANTIZED = WRITERS / "quantized_hf"


def tool(*arguments):
    subprocess.run([TOOL, *arguments], check=True, capture_output=True)


def files_of(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class OpeningTest(common.WorkTest):
    def refused(self, code, *words):
        test = self

        class Refused:
            def __enter__(self):
                self.context = test.assertRaises(shardmesh.Error)
                self.caught = self.context.__enter__()

            def __exit__(self, *raised):
                held = self.context.__exit__(*raised)
                test.assertEqual(self.caught.exception.code, code)
                for word in words:
                    test.assertIn(word, str(self.caught.exception))
                return held

        return Refused()

    def test_only_keys_of_a_dcp_folder_are_all_that_is_built(self):
        whole = shardmesh.open(FOLDER)
        for entry in whole.tensors:
            for given in (entry.key, [entry.key]):
                little = shardmesh.open(FOLDER, only_keys=given)
                self.assertEqual(list(little), [entry.key])
                self.assertEqual(raw(little.load(entry.key)), raw(whole.load(entry.key)))
        first, second = (entry.key for entry in whole.tensors[:2])
        self.assertEqual(set(shardmesh.open(FOLDER, only_keys=[second, first])), {first, second})
        self.assertEqual(list(shardmesh.open(FOLDER, only_keys=["nothing"])), [])

    def test_one_load_of_a_path_names_the_nearest_of_all_keys(self):
        key = shardmesh.open(FOLDER).tensors[0].key
        with self.refused("missing_key", f"did you mean {key}"):
            shardmesh.load(FOLDER, key[:-1])
        with self.refused("missing_key", f"did you mean {key}"):
            shardmesh.map_tensor(FOLDER, key[:-1])

    def test_all_parts_of_a_folder_are_those_that_the_command_line_shows(self):
        folder = WRITERS / "trainers" / "accelerate"
        said = json.loads(subprocess.run([TOOL, "inspect", folder, "--all", "--json"], capture_output=True,
                                         check=True).stdout)
        parts = shardmesh.inspect(folder, all_parts=True)
        self.assertEqual(parts.format, "parts")
        self.assertEqual([entry.key for entry in parts.tensors], list(said["tensors"]))
        self.assertGreater(len(parts.tensors), 0)
        with self.refused("bad_format"):
            shardmesh.open(folder)
        self.assertTrue(shardmesh.verify(folder, all_parts=True).ok)
        self.assertTrue(shardmesh.diff(folder, folder, all_parts=True).equal)

    def test_all_parts_of_a_dcp_folder_are_itself_and_what_lies_beside(self):
        folder = self.work / "beside"
        shutil.copytree(FOLDER, folder)
        beside = {"state": torch.arange(5)}
        torch.save(beside, folder / "rng.pt")
        whole, parts = shardmesh.open(FOLDER), shardmesh.open(folder, all_parts=True)
        self.assertEqual({entry.key for entry in parts.tensors},
                         {"rng.state"} | {f"checkpoint.{entry.key}" for entry in whole.tensors})
        self.assertEqual(raw(parts.load("rng.state")), raw(beside["state"]))
        for entry in whole.tensors:
            self.assertEqual(raw(parts.load(f"checkpoint.{entry.key}")), raw(whole.load(entry.key)))
        for name, write in {"converted": lambda out: shardmesh.convert(folder, out, "hf", all_parts=True),
                            "resharded": lambda out: shardmesh.reshard(folder, out, "2", place=[".*=R"],
                                                                       all_parts=True)}.items():
            write(self.work / name)
            self.assertTrue(shardmesh.diff(folder, self.work / name, all_parts=True).equal, name)
        self.assertTrue(shardmesh.verify(folder, all_parts=True).ok)
        min(folder.glob("*.distcp")).unlink()
        self.assertFalse(shardmesh.verify(folder, all_parts=True).ok)

    def test_dequantized_weights_are_those_of_pytorchs_reader(self):
        expected = json.loads((QUANTIZED / "expected.json").read_text())["float32"]
        plain = shardmesh.open(QUANTIZED / "checkpoint")
        numbers = shardmesh.open(QUANTIZED / "checkpoint", dequantize=True)
        self.assertIn("float8", plain["a.weight"].dtype)
        for key, said in expected.items():
            loaded = numbers.load(key)
            self.assertEqual((list(loaded.shape), loaded.dtype), (said["shape"], torch.float32))
            self.assertEqual(hashlib.sha256(raw(loaded)).hexdigest(), said["sha256"])
            self.assertEqual(raw(numbers[key][1:3]), raw(loaded[1:3]))  # including NaNs
        arrived = list(numbers.start_load({key: torch.empty(said["shape"]) for key, said in expected.items()}))
        self.assertEqual(sorted(arrived), sorted(expected))
        with self.refused("unsupported", "a.weight", "load it"):
            numbers.map_tensor("a.weight")
        with self.refused("invalid_argument"):
            shardmesh.open(QUANTIZED / "checkpoint", dequantize=True, block_size=0)

    def test_convert_and_reshard_write_dequantized_weights(self):
        source = QUANTIZED / "checkpoint"
        tool("convert", source, self.work / "theirs", "--to", "dcp", "--dequantize")
        shardmesh.convert(source, self.work / "ours", "dcp", dequantize=True)
        self.assertTrue(shardmesh.diff(self.work / "ours", self.work / "theirs").equal)
        shardmesh.reshard(source, self.work / "cut", "2", default="S(0)", dequantize=True)
        self.assertTrue(shardmesh.diff(self.work / "cut", self.work / "theirs").equal)
        self.assertEqual(shardmesh.open(self.work / "cut")["a.weight"].dtype, "float32")

    def test_a_byte_of_a_scale_that_changed_is_found_before_anything_is_written(self):
        stored = self.work / "stored"
        shardmesh.convert(QUANTIZED / "checkpoint", stored, "dcp")
        [chunk] = shardmesh.open(stored)["a.weight_scale_inv"].chunks
        data = bytearray((stored / chunk.file).read_bytes())
        at = data.index(raw(shardmesh.load(stored, "a.weight_scale_inv")))
        data[at] ^= 1
        (stored / chunk.file).write_bytes(data)
        for write in (lambda: shardmesh.convert(stored, self.work / "m.safetensors", dequantize=True),
                      lambda: shardmesh.reshard(stored, self.work / "cut", "2", default="S(0)", dequantize=True)):
            with self.refused("checksum_mismatch"):
                write()
        self.assertEqual(self.left_in_work(), ["stored"])

    def test_folders_of_torch_checkpointing_are_byte_for_byte_those_of_the_command_line(self):
        for options, flags in (({}, []), ({"payload": "safetensors"}, ["--payload", "safetensors"]),
                               ({"item": "all", "nest": True}, ["--item", "all", "--nest"])):
            with self.subTest(options):
                ours, theirs = self.work / f"ours{len(flags)}", self.work / f"theirs{len(flags)}"
                shardmesh.convert(FOLDER, ours, "torch-checkpointing", **options)
                tool("convert", FOLDER, theirs, "--to", "torch-checkpointing", *flags)
                self.assertEqual(files_of(ours), files_of(theirs))
                made = shardmesh.open(ours)
                self.assertEqual(made.format, "torch-checkpointing")
                self.assertTrue(shardmesh.verify(ours).ok)
        self.assertTrue(shardmesh.diff(FOLDER, self.work / "ours0").equal)
        self.assertTrue(any(name.endswith(".safetensors") for name in files_of(self.work / "ours2")))

    def test_a_state_dict_is_saved_as_torch_checkpointing(self):
        state = {"model": {"w": torch.arange(12.0).reshape(4, 3), "b": torch.ones(3)}, "extra": {"epoch": 3}}
        for payload, file in (("torch", "model_0.pt"), ("safetensors", "model_0.safetensors")):
            path = self.work / payload
            shardmesh.save(state, path, "torch-checkpointing", payload=payload)
            self.assertIn(file, files_of(path))
            made = shardmesh.open(path)
            self.assertTrue(torch.equal(made.load("model.w"), state["model"]["w"]))
            self.assertEqual(made.load("extra.epoch"), 3)
        stored = torch.load(self.work / "torch" / "model_0.pt", weights_only=True)
        self.assertTrue(torch.equal(stored["w"], state["model"]["w"]) and torch.equal(stored["b"], torch.ones(3)))
        shardmesh.save({"w": torch.ones(2)}, self.work / "flat", "torch-checkpointing", item="net")
        self.assertIn("net_0.pt", files_of(self.work / "flat"))

    def test_a_list_in_a_gguf_file_has_the_first_type_that_holds_every_element(self):
        int32, uint32, int64, uint64, boolean, texts, array, float32, float64 = 5, 4, 11, 10, 7, 8, 9, 6, 12
        lists = {"signed": (int32, [1, -1]), "unsigned": (uint32, [0, 2**32 - 1]), "wide": (int64, [-1, 2**40]),
                 "widest": (uint64, [1, 2**63]), "flags": (boolean, [True, False]), "texts": (texts, ["a", ""]),
                 "exact": (float32, [1.5, -0.25]), "floats": (float64, [1.5, 0.1]), "none": (int32, []),
                 "nested": (array, [[1], [0.1]]), "two kinds": (None, ["a", 1]), "ragged": (None, [[1], 2])}
        state = {key: value for key, (_, value) in lists.items()}
        file = self.work / "lists.gguf"
        shardmesh.save({"w": torch.zeros(2), **state}, file, "gguf")
        stored, opened = file.read_bytes(), shardmesh.open(file)
        for key, (type_of_elements, value) in lists.items():
            with self.subTest(key):
                self.assertEqual(opened.load(key), value)
                head = struct.pack("<Q", len(key)) + key.encode() + struct.pack("<I", array)
                self.assertEqual(head in stored, type_of_elements is not None)
                if type_of_elements is not None:
                    found = struct.unpack_from("<IQ", stored, stored.index(head) + len(head))
                    self.assertEqual(found, (type_of_elements, len(value)))

    def test_gguf_files_are_byte_for_byte_those_of_the_command_line(self):
        source, ours, theirs = (self.work / name for name in ("in.safetensors", "ours.gguf", "theirs.gguf"))
        weight = torch.arange(512.0).reshape(2, 256)
        shardmesh.save({"w": weight, "norm": torch.ones(64)}, source, "safetensors")
        for rules, flags in (((), []), ("Q8_0", ["--quantize", "Q8_0"]),
                             (["norm=Q4_0", "Q6_K"], ["--quantize", "norm=Q4_0", "--quantize", "Q6_K"])):
            with self.subTest(rules):
                shardmesh.convert(source, ours, quantize=rules, overwrite=True)
                tool("convert", source, theirs, "--force", *flags)
                self.assertEqual(ours.read_bytes(), theirs.read_bytes())
                made = shardmesh.open(ours)
                self.assertEqual(made.format, "gguf")
                self.assertLess((made.load("w") - weight).abs().max(), 20)
                self.assertTrue(torch.equal(made.load("norm"), torch.ones(64)))
        with self.refused("invalid_argument", "Q8_0", "Q9"):
            shardmesh.convert(source, self.work / "x.gguf", quantize="Q9")
        shardmesh.save({"w": weight, "step": 3}, self.work / "saved.gguf", "gguf")
        saved = shardmesh.open(self.work / "saved.gguf")
        self.assertTrue(torch.equal(saved.load("w"), weight))
        self.assertEqual(saved.load("step"), 3)

    def test_numpy_reads_npz_archives_and_their_own_are_read(self):
        import numpy

        weight = torch.arange(6.0).reshape(2, 3)
        shardmesh.save({"w": weight, "step": 3}, self.work / "saved.npz", "npz")
        with numpy.load(self.work / "saved.npz", allow_pickle=False) as found:
            self.assertEqual(found["w"].tolist(), weight.tolist())
        saved = shardmesh.open(self.work / "saved.npz")
        self.assertEqual((saved.format, saved.load("step")), ("npz", 3))
        numpy.savez_compressed(self.work / "theirs.npz", **{"a/b": numpy.asfortranarray(weight.numpy())})
        shardmesh.convert(self.work / "theirs.npz", self.work / "ours.npz")
        for name in ("theirs.npz", "ours.npz"):
            self.assertTrue(torch.equal(shardmesh.open(self.work / name).load("a/b"), weight))
        with self.refused("unsupported", "NumPy has no bfloat16", "h"):
            shardmesh.save({"h": torch.ones(2, dtype=torch.bfloat16)}, self.work / "half.npz", "npz")

    def test_formats_and_payloads_that_there_are_not_are_refused(self):
        for write in (lambda **of: shardmesh.save({"w": torch.ones(2)}, self.work / "x", **of),
                      lambda **of: shardmesh.convert(FOLDER, self.work / "x", **of)):
            with self.refused("invalid_argument", "torch-checkpointing", "zip"):
                write(format="zip")
            with self.refused("invalid_argument", "torch or safetensors", "zip"):
                write(format="torch-checkpointing", payload="zip")
        self.assertEqual(self.left_in_work(), [])

    def test_components_are_kept_apart_as_by_the_command_line(self):
        source = self.work / "source.safetensors"
        tool("convert", WRITERS / "wrappers" / "wrappers.pt", source)
        (self.work / "theirs").mkdir()  # archives contain their names
        tool("convert", source, self.work / "theirs" / "apart.pt", "--components")
        shardmesh.convert(source, self.work / "apart.pt", components=True)
        shardmesh.convert(source, self.work / "together.pt")
        self.assertEqual((self.work / "apart.pt").read_bytes(), (self.work / "theirs" / "apart.pt").read_bytes())
        self.assertNotEqual(list(shardmesh.open(self.work / "apart.pt")),
                            list(shardmesh.open(self.work / "together.pt")))

    def test_tensors_are_held_against_other_shapes_or_cut_and_filled_to_them(self):
        stored, like = self.work / "stored", self.work / "like"
        shardmesh.save({"w": torch.arange(6.0).reshape(2, 3), "v": torch.ones(4)}, stored)
        shardmesh.save({"w": torch.zeros(3, 3), "v": torch.zeros(2)}, like)
        with self.refused("shape_mismatch"):
            shardmesh.convert(stored, self.work / "m.safetensors", like=like)
        report = shardmesh.convert(stored, self.work / "m.safetensors", like=like, allow_shape_mismatch=True)
        made = shardmesh.open(self.work / "m.safetensors")
        self.assertEqual(made.load("w").tolist(), [[0, 1, 2], [3, 4, 5], [0, 0, 0]])
        self.assertEqual(made.load("v").tolist(), [1, 1])
        self.assertEqual(len(report.notes), 2)


if __name__ == "__main__":
    common.main()
