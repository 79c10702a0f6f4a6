// The ops of a graph under construction, one column a field. Internal to csrc/graph.
#pragma once

#include <cstdint>
#include <span>

#include "graph/buffer.h"
#include "graph/image.h"

namespace prism {

class OpColumns {
 public:
  std::size_t size() const noexcept { return kind_.size(); }
  void append(std::span<const Op> ops);
  bool equals(std::size_t at, std::span<const Op> ops) const noexcept;
  Op op(std::size_t at) const noexcept;
  OpKind kind(std::size_t at) const noexcept { return static_cast<OpKind>(kind_[at]); }
  std::uint8_t detail(std::size_t at) const noexcept { return detail_[at]; }

  void sources(Sources& sources) const;
  void release(format::Section section) noexcept;  // frees one column, to keep the peak low

 private:
  Buffer<std::uint8_t> kind_, flags_, dtype_, detail_;
  Buffer<std::uint32_t> ref_;
  Buffer<std::uint16_t> stream_, event_stream_;
  Buffer<std::uint32_t> peer_, host_ns_, tag_;
  Buffer<std::int64_t> duration_ns_, bytes_;
};

}  // namespace prism
