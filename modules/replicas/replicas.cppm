// SPDX-License-Identifier: Apache-2.0
// The primary interface of room replicas: the last step of a training run also lies in the memory of other failure
// domains, so that the ranks that are left, and their replacements, resume from it without reading the store.
//
// `step_replicas` copies a step, and loads it on any mesh. Steps in files are in room run. The program finds out
// which ranks have died, and makes a new communicator of the others.
export module shardmesh.replicas;

export import shardmesh.run;

export import :replicas_options;
export import :step_replicas;
