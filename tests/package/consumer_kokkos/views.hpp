// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <shardmesh/tensor_view.hpp>

#include <functional>

void with_matrices(const std::function<void(const shardmesh::tensor_view&, const shardmesh::tensor_view&)>& act);
