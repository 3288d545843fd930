// SPDX-License-Identifier: Apache-2.0
// shardmesh.nemo reads the .nemo files of NVIDIA NeMo: tar archives of a model's settings and its weights. Nothing is
// extracted.
export module shardmesh.nemo;

export import shardmesh.dcp;

export import :archive;
export import :reader;
