// SPDX-License-Identifier: Apache-2.0
// A Python with the distributed suite built in: gloo groups can be made only in Python, and the suite is compiled once,
// for programs. Its first argument is the Python whose environment it uses; the others are Python's own:
//   torch_distributed .venv/bin/python -B ranks.py ...
extern "C" int Py_BytesMain(int argc, char** argv);

int main(int argc, char** argv) {
  return Py_BytesMain(argc - 1, argv + 1);
}
