// SPDX-License-Identifier: Apache-2.0
#pragma once
// The headers that most tests include, compiled once. Every test still includes what it uses. Without <variant>:
// otherwise Clang 19 treats std::variant of shardmesh.std and of the header as two types.
#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>
