// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <zstd.h>

#include <cstddef>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <vector>
module shardmesh.delta;

import shardmesh.core;
import :zstd_frame;

namespace shardmesh::delta {
namespace {

struct free_compression {
  void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
};
struct free_decompression {
  void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
};

template <class Context>
Context* checked(Context* made) {
  if (made == nullptr) throw std::bad_alloc();
  return made;
}

}  // namespace

struct frame_compressor::state {
  int level = 0;
  std::unique_ptr<ZSTD_CCtx, free_compression> context{checked(ZSTD_createCCtx())};
  std::vector<std::byte> frame;  // only grows
};

frame_compressor::frame_compressor(int level) : state_(std::make_unique<state>()) {
  state_->level = level;
}
frame_compressor::~frame_compressor() = default;

std::optional<std::span<const std::byte>> frame_compressor::compress(std::span<const std::byte> bytes) {
  std::vector<std::byte>& frame = state_->frame;
  const std::size_t most = ZSTD_compressBound(bytes.size());
  if (frame.size() < most) frame.resize(most);
  const std::size_t length =
      ZSTD_compressCCtx(state_->context.get(), frame.data(), frame.size(), bytes.data(), bytes.size(), state_->level);
  if (ZSTD_isError(length)) throw std::bad_alloc();  // nothing else fails with a level and a buffer that fit
  if (length >= bytes.size()) return std::nullopt;
  return std::span<const std::byte>(frame).first(length);
}

struct frame_decompressor::state {
  std::unique_ptr<ZSTD_DCtx, free_decompression> context{checked(ZSTD_createDCtx())};
};

frame_decompressor::frame_decompressor() : state_(std::make_unique<state>()) {}
frame_decompressor::~frame_decompressor() = default;

result<void> frame_decompressor::decompress(std::span<const std::byte> frame, std::span<std::byte> out) {
  const std::size_t length =
      ZSTD_decompressDCtx(state_->context.get(), out.data(), out.size(), frame.data(), frame.size());
  if (ZSTD_isError(length))
    return fail(errc::bad_format, fmt::format("the compressed block is damaged: {}", ZSTD_getErrorName(length)));
  if (length != out.size())
    return fail(errc::bad_format, "the compressed block has another size than its description says")
        .with_values(fmt::format("{} bytes", out.size()), fmt::format("{}", length));
  return {};
}

}  // namespace shardmesh::delta
