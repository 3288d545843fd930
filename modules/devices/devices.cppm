// SPDX-License-Identifier: Apache-2.0
// shardmesh.devices: the GPUs of this machine, and the libraries with which shardmesh uses them. An optional room:
// `import shardmesh;` does not include it.
export module shardmesh.devices;

export import shardmesh.core;

export import :report;
