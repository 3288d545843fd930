// SPDX-License-Identifier: Apache-2.0
// Empty: CMake precompiles headers only for targets that have a source.
