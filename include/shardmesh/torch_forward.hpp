// SPDX-License-Identifier: Apache-2.0
// Forward declarations of LibTorch types that interfaces of room `torch` only pass on, so that they include none of its
// headers.
#pragma once

namespace c10 {
struct IValue;
}

namespace c10d {
class ProcessGroup;
}
