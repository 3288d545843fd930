// SPDX-License-Identifier: Apache-2.0
// A Python that has the distributed suite in itself: groups of gloo can be made in Python only, and the suite is
// compiled once, for programs. Its arguments are Python's own, after the program whose Python it is:
//   torch_distributed .venv/bin/python -B ranks.py ...
extern "C" int Py_BytesMain(int argc, char** argv);

int main(int argc, char** argv) {
  return Py_BytesMain(argc - 1, argv + 1);
}
