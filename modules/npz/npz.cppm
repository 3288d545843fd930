// SPDX-License-Identifier: Apache-2.0
// shardmesh.npz reads and writes NumPy's .npz archives, and reads single .npy arrays and MLX folders of weights.npz. No
// pickle is executed: arrays of Python objects are listed, and never read.
export module shardmesh.npz;

export import shardmesh.safetensors;

export import :array_header;
export import :reader;
export import :save;
