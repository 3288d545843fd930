// SPDX-License-Identifier: Apache-2.0
// CMake precompiles headers for targets that have a source.
