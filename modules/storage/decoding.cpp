// SPDX-License-Identifier: Apache-2.0
module;
#include <fmt/core.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>
#include <shardmesh/try.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>
module shardmesh.storage;

namespace shardmesh {
namespace {

constexpr std::size_t buffer_bytes = 64 << 10;

// A decoder that reads its source front to back. A lack of memory throws std::bad_alloc: it is no damage of the data.
class decoder {
 public:
  virtual ~decoder() = default;
  // Returns the number of decoded bytes written to `out`; 0 at the end of the stream.
  virtual result<std::size_t> decode(std::span<std::byte> out) = 0;
};

class fed_decoder : public decoder {
 public:
  explicit fed_decoder(const byte_source& encoded) : encoded_(encoded), input_(buffer_bytes) {}

 protected:
  // Returns the next encoded bytes; empty at the end of the source.
  result<std::span<const std::byte>> feed() {
    const auto left = static_cast<std::size_t>(encoded_.size_bytes() - read_);
    const auto chunk = std::span(input_).first(std::min(left, input_.size()));
    SHARDMESH_TRY(encoded_.read(read_, chunk));
    read_ += static_cast<std::int64_t>(chunk.size());
    return std::span<const std::byte>(chunk);
  }
  error damaged(std::string_view what) const {
    return fail(errc::bad_format, fmt::format("compressed data is damaged: {}", what)).with_file(encoded_.name());
  }

 private:
  const byte_source& encoded_;
  std::vector<std::byte> input_;
  std::int64_t read_ = 0;
};

class zstd_decoder final : public fed_decoder {
 public:
  explicit zstd_decoder(const byte_source& encoded) : fed_decoder(encoded), context_(ZSTD_createDCtx()) {
    if (!context_) throw std::bad_alloc();
  }

  result<std::size_t> decode(std::span<std::byte> out) override {
    ZSTD_outBuffer output{out.data(), out.size(), 0};
    while (output.pos < output.size) {
      if (input_.pos == input_.size) {
        SHARDMESH_TRY(const auto chunk, feed());
        input_ = {chunk.data(), chunk.size(), 0};
        if (chunk.empty() && !at_frame_end_) return damaged("the stream ends in the middle of a frame");
        if (chunk.empty()) break;
      }
      const std::size_t status = ZSTD_decompressStream(context_.get(), &output, &input_);
      if (ZSTD_getErrorCode(status) == ZSTD_error_memory_allocation) throw std::bad_alloc();
      if (ZSTD_isError(status)) return damaged(ZSTD_getErrorName(status));
      at_frame_end_ = status == 0;
    }
    return output.pos;
  }

 private:
  struct free_context {
    void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
  };
  std::unique_ptr<ZSTD_DCtx, free_context> context_;
  ZSTD_inBuffer input_{nullptr, 0, 0};
  bool at_frame_end_ = true;
};

class deflate_decoder final : public fed_decoder {
 public:
  // `is_gzip`: the stream is one or more members of gzip. Otherwise it is raw: ZIP records have no zlib header.
  deflate_decoder(const byte_source& encoded, bool is_gzip) : fed_decoder(encoded), is_gzip_(is_gzip) {
    if (inflateInit2(&stream_, is_gzip ? MAX_WBITS + 16 : -MAX_WBITS) != Z_OK) throw std::bad_alloc();
  }
  ~deflate_decoder() override { inflateEnd(&stream_); }

  result<std::size_t> decode(std::span<std::byte> out) override {
    out = out.first(std::min<std::size_t>(out.size(), std::size_t{1} << 30));  // zlib counts in 32 bits
    stream_.next_out = reinterpret_cast<Bytef*>(out.data());
    stream_.avail_out = static_cast<uInt>(out.size());
    while (stream_.avail_out > 0 && !ended_) {
      if (stream_.avail_in == 0) {
        SHARDMESH_TRY(const auto chunk, feed());
        if (chunk.empty() && at_member_end_) {
          ended_ = true;
          break;
        }
        stream_.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(chunk.data()));
        stream_.avail_in = static_cast<uInt>(chunk.size());
      }
      // zlib may have taken all bytes, and still hold output for which there was no room. It needs no input for that.
      const int status = inflate(&stream_, Z_NO_FLUSH);
      if (status == Z_MEM_ERROR) throw std::bad_alloc();
      if (status == Z_BUF_ERROR) return damaged("the stream ends early");
      if (status != Z_OK && status != Z_STREAM_END) return damaged(stream_.msg ? stream_.msg : "not a deflate stream");
      at_member_end_ = is_gzip_ && status == Z_STREAM_END;
      ended_ = !is_gzip_ && status == Z_STREAM_END;
      if (at_member_end_) inflateReset(&stream_);  // another member may follow
    }
    return out.size() - stream_.avail_out;
  }

 private:
  bool is_gzip_;
  z_stream stream_{};
  bool at_member_end_ = false, ended_ = false;
};

std::unique_ptr<decoder> make_decoder(const byte_source& encoded, codec how) {
  if (how == codec::zstd) return std::make_unique<zstd_decoder>(encoded);
  return std::make_unique<deflate_decoder>(encoded, how == codec::gzip);
}

class decoding_source final : public byte_source {
 public:
  decoding_source(std::unique_ptr<byte_source> encoded, codec how) : encoded_(std::move(encoded)), how_(how) {}

  // Determines the size; fails when the stream decodes to more than `most` bytes.
  result<void> measure(std::int64_t most) {
    start_over();
    std::vector<std::byte> window(buffer_bytes), previous;
    for (;;) {
      SHARDMESH_TRY(const std::size_t got, fill(window));
      size_ += static_cast<std::int64_t>(got);
      if (size_ > most)
        return beyond_limit("compressed data decodes to more than is plausible", most).with_file(encoded_->name());
      if (head_.empty()) head_.assign(window.begin(), window.begin() + static_cast<std::ptrdiff_t>(got));
      if (got < window.size()) {
        tail_ = std::move(previous);
        tail_.insert(tail_.end(), window.begin(), window.begin() + static_cast<std::ptrdiff_t>(got));
        break;
      }
      previous = window;
    }
    decoder_.reset();
    return {};
  }

  std::int64_t encoded_bytes() const { return encoded_->size_bytes(); }
  std::int64_t size_bytes() const override { return size_; }
  std::string name() const override { return encoded_->name(); }

  result<void> read(std::int64_t offset, std::span<std::byte> out) const override {
    const auto length = static_cast<std::int64_t>(out.size());
    if (offset < 0 || offset > size_ || length > size_ - offset)
      return fail(errc::out_of_bounds, "a read goes beyond the decoded bytes").with_file(name());
    if (copy_from(head_, 0, offset, out) ||
        copy_from(tail_, size_ - static_cast<std::int64_t>(tail_.size()), offset, out))
      return {};
    SHARDMESH_TRY(const auto held, lock_.acquire());
    // After a failure, such as a lack of memory, the decoder may have decoded bytes that `position_` does not count.
    result<void> done;
    try {
      done = decode_from(offset, out);
    } catch (...) {
      decoder_.reset();
      throw;
    }
    if (!done) decoder_.reset();
    return done;
  }

 private:
  result<void> decode_from(std::int64_t offset, std::span<std::byte> out) const {
    if (!decoder_ || position_ > offset) start_over();
    std::vector<std::byte> skipped(std::min<std::size_t>(buffer_bytes, static_cast<std::size_t>(offset - position_)));
    while (position_ < offset) {
      const auto step =
          std::span(skipped).first(std::min<std::size_t>(skipped.size(), static_cast<std::size_t>(offset - position_)));
      SHARDMESH_TRY(fill_whole(step));
    }
    return fill_whole(out);
  }
  static bool copy_from(const std::vector<std::byte>& kept, std::int64_t kept_at, std::int64_t offset,
                        std::span<std::byte> out) {
    if (offset < kept_at ||
        offset + static_cast<std::int64_t>(out.size()) > kept_at + static_cast<std::int64_t>(kept.size()))
      return false;
    std::copy_n(kept.begin() + (offset - kept_at), out.size(), out.begin());
    return true;
  }
  void start_over() const {
    decoder_ = make_decoder(*encoded_, how_);
    position_ = 0;
  }
  result<std::size_t> fill(std::span<std::byte> out) const {
    std::size_t filled = 0;
    while (filled < out.size()) {
      SHARDMESH_TRY(const std::size_t got, decoder_->decode(out.subspan(filled)));
      if (got == 0) break;
      filled += got;
    }
    position_ += static_cast<std::int64_t>(filled);
    return filled;
  }
  result<void> fill_whole(std::span<std::byte> out) const {
    SHARDMESH_TRY(const std::size_t got, fill(out));
    if (got != out.size()) return fail(errc::io, "changed while it was read").with_file(name());
    return {};
  }

  std::unique_ptr<byte_source> encoded_;
  codec how_;
  std::int64_t size_ = 0;
  std::vector<std::byte> head_, tail_;
  mutable detail::call_lock lock_;
  mutable std::unique_ptr<decoder> decoder_;
  mutable std::int64_t position_ = 0;
};

}  // namespace

result<std::unique_ptr<byte_source>> open_decoding_source(std::unique_ptr<byte_source> encoded, codec how,
                                                          read_budget* budget, const std::string& place) {
  auto source = std::make_unique<decoding_source>(std::move(encoded), how);
  // `measure` stops at the limit that is left for all streams. `decode` then counts this stream against that limit.
  const std::int64_t bytes = source->encoded_bytes();
  SHARDMESH_TRY(source->measure(budget != nullptr ? budget->left_to_decode(place, bytes)
                                                  : std::numeric_limits<std::int64_t>::max()));
  if (budget != nullptr) {
    auto done = budget->decode(place, bytes, source->size_bytes());
    if (!done) return std::move(done).error().with_file(source->name());
  }
  return std::unique_ptr<byte_source>(std::move(source));
}

result<std::vector<std::byte>> decode_beginning(const byte_source& encoded, codec how, std::int64_t count) {
  const auto wanted = static_cast<std::size_t>(std::max<std::int64_t>(count, 0));
  const std::unique_ptr<decoder> decoding = make_decoder(encoded, how);
  std::vector<std::byte> decoded;
  while (decoded.size() < wanted) {
    const std::size_t before = decoded.size();
    decoded.resize(before + std::min(wanted - before, buffer_bytes));
    SHARDMESH_TRY(const std::size_t got, decoding->decode(std::span(decoded).subspan(before)));
    decoded.resize(before + got);
    if (got == 0) break;
  }
  return decoded;
}

}  // namespace shardmesh
