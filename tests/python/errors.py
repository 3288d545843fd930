# SPDX-License-Identifier: Apache-2.0
"""shardmesh.Error: the text and the fields of the library's errors. Needs no torch."""
import copy
import os
import pickle
import subprocess
import sys
import unittest

import common
import shardmesh

FOLDER = common.GOLDEN / "dtensor_shard0_4" / "checkpoint"


class ErrorTest(common.WorkTest):
    def refusal(self, call, *arguments, **options):
        with self.assertRaises(shardmesh.Error) as caught:
            call(*arguments, **options)
        return caught.exception

    def test_a_path_that_is_not_there_is_an_error_that_names_it(self):
        problem = self.refusal(shardmesh.open, self.work / "nothing")
        self.assertEqual(problem.code, "io")
        self.assertEqual(problem.path, str(self.work / "nothing"))

    def test_the_text_is_what_the_command_line_says(self):
        tool = os.path.join(os.path.dirname(shardmesh.__file__), "bin", "shardmesh")
        for name in ("truncated_metadata", "not_metadata", "garbage_metadata", "missing_metadata"):
            folder = common.GOLDEN / "corrupt" / name / "checkpoint"
            if not folder.exists():
                folder = common.GOLDEN / "corrupt" / name
            said = subprocess.run([tool, "inspect", folder], capture_output=True, text=True).stderr.splitlines()
            with self.subTest(name):
                self.assertEqual(str(self.refusal(shardmesh.open, folder)), said[0])

    def test_a_package_without_the_c_library_says_what_to_install(self):
        from shardmesh import c_api

        for function in (c_api.get_include, c_api.get_pkgconfig_dir):
            with self.assertRaisesRegex(FileNotFoundError, "built without the C library.*install a wheel"):
                function()

    def test_an_error_does_not_show_the_password_or_the_query_of_a_url(self):
        with self.assertRaises(shardmesh.Error) as caught:
            shardmesh.convert(common.GOLDEN / "single_rank" / "checkpoint", "https://me:hunter2@host/x?key=hunter2")
        self.assertEqual(caught.exception.path, "https://host/x")
        self.assertNotIn("hunter2", repr(caught.exception) + str(caught.exception.__dict__))

    def test_a_url_in_a_wrong_place_is_shown_without_its_password_and_query(self):
        for problem in (self.refusal(shardmesh.Run, "hf://me:hunter2@owner/name"),
                        self.refusal(shardmesh.open, FOLDER, rank="https://me:hunter2@host/x?key=hunter2")):
            self.assertNotIn("hunter2", repr(problem) + str(problem.__dict__))
        self.assertEqual(self.refusal(shardmesh.Run, "hf://owner/name@v2").path, "hf://owner/name@v2")
        self.assertEqual(self.refusal(shardmesh.Run, "hf://name@refs/pr/1").path, "hf://name@refs/pr/1")

    def test_the_line_of_an_error_ends_in_its_code(self):
        for problem in (self.refusal(shardmesh.open, self.work / "nothing"), self.refusal(shardmesh.convert, FOLDER, self.work / "out", "zip")):
            self.assertEqual(str(problem).rpartition(" ")[2], f"[{problem.code}]")
            self.assertNotIn("[", problem.message)

    def test_an_error_survives_pickling_and_copying_with_all_its_fields(self):
        problem = self.refusal(shardmesh.open, self.work / "nothing")
        problem.others = (shardmesh.Error("gap", "rows are missing", ranks=(3, 5), boxes=(shardmesh.Box((0,), (2,)),)),)
        for again in (pickle.loads(pickle.dumps(problem)), copy.copy(problem)):
            self.assertEqual(str(again), str(problem))
            self.assertEqual(again.code, problem.code)
            self.assertEqual(again.path, problem.path)
            self.assertEqual(again.errno, problem.errno)
            self.assertEqual(again.others[0].ranks, (3, 5))
            self.assertEqual(again.others[0].rank, 3)
            self.assertEqual(again.others[0].boxes, (shardmesh.Box((0,), (2,)),))

    def test_a_box_prints_as_the_library_prints_it(self):
        self.assertEqual(str(shardmesh.Box((4, 0), (2, 8))), "[4:6, 0:8)")

    def test_paths_that_are_no_text_come_back_as_they_were(self):
        name = os.fsdecode(os.fsencode(self.work) + b"/\xff")
        self.assertEqual(self.refusal(shardmesh.open, name).path, name)

    def test_a_call_that_is_refused_names_what_it_expected_and_what_it_found(self):
        problem = self.refusal(shardmesh.convert, FOLDER, self.work / "out", "zip")
        self.assertEqual((problem.code, problem.expected, problem.found),
                         ("invalid_argument", "dcp, safetensors, hf, pt, torch-checkpointing, gguf, or npz", "zip"))
        self.assertEqual(self.left_in_work(), [])

    def test_descriptions_and_checks_do_not_import_torch(self):
        code = ("import sys, shardmesh; c = shardmesh.open(sys.argv[1]); [str(e) for e in c.values()]; "
                "assert shardmesh.verify(sys.argv[1]).ok; assert shardmesh.diff(sys.argv[1], sys.argv[1]).equal; "
                "shardmesh.convert(sys.argv[1], sys.argv[2], skip_objects=True); assert 'torch' not in sys.modules")
        done = subprocess.run([sys.executable, "-c", code, FOLDER, self.work / "out.safetensors"], capture_output=True,
                              text=True)
        self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    common.main()
