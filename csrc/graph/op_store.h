// The ops of a graph under construction. In chunks, so that growing moves nothing and writing the
// graph can free what it has copied. Internal to csrc/graph.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "graph/op.h"

namespace prism {

// Where the columns of ops lie in a graph that is being written.
struct OpColumns {
  std::uint8_t *kind, *flags, *dtype, *detail;
  std::uint32_t* ref;
  std::uint16_t *stream, *event_stream;
  std::uint32_t *peer, *host_ns, *tag;
  std::int64_t *duration_ns, *bytes;

  void put(std::size_t at, std::span<const Op> ops) const noexcept;
};

class OpStore {
 public:
  std::size_t size() const noexcept { return size_; }
  const Op& operator[](std::size_t i) const noexcept {
    return chunks_[i / chunk_ops].get()[i % chunk_ops];
  }
  void append(std::span<const Op> ops);
  bool equals(std::size_t at, std::span<const Op> ops) const noexcept;
  void move_to(const OpColumns& columns) noexcept;  // leaves the store empty

 private:
  static constexpr std::size_t chunk_ops = std::size_t{1} << 16;
  static constexpr std::size_t chunk_bytes = chunk_ops * sizeof(Op);
  struct Unmap {
    void operator()(Op* ops) const noexcept;
  };

  std::vector<std::unique_ptr<Op, Unmap>> chunks_;
  std::size_t size_ = 0;
};

}  // namespace prism
