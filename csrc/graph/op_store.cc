#include "graph/op_store.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>

namespace prism {

void OpColumns::put(std::size_t at, std::span<const Op> ops) const noexcept {
  for (std::size_t k = 0; k < ops.size(); ++k) {
    const Op& op = ops[k];
    const std::size_t i = at + k;
    kind[i] = static_cast<std::uint8_t>(op.kind);
    flags[i] = op.flags;
    dtype[i] = static_cast<std::uint8_t>(op.dtype);
    detail[i] = op.detail;
    ref[i] = op.ref;
    stream[i] = op.stream;
    event_stream[i] = op.event_stream;
    peer[i] = op.peer;
    host_ns[i] = op.host_ns;
    tag[i] = op.tag;
    duration_ns[i] = op.duration_ns;
    bytes[i] = op.bytes;
  }
}

void OpStore::Unmap::operator()(Op* ops) const noexcept { ::munmap(ops, chunk_bytes); }

void OpStore::append(std::span<const Op> ops) {
  while (!ops.empty()) {
    const std::size_t used = size_ % chunk_ops;
    if (used == 0) {
      // Not malloc: what is freed here must go back at once, wherever it lies.
      // The first chunk takes memory as it fills; more chunks take it whole, which is faster.
      const int whole = chunks_.empty() ? 0 : MAP_POPULATE;
      void* chunk = ::mmap(nullptr, chunk_bytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | whole, -1, 0);
      if (chunk == MAP_FAILED) throw std::bad_alloc();
      chunks_.emplace_back(static_cast<Op*>(chunk));
    }
    const std::size_t count = std::min(ops.size(), chunk_ops - used);
    std::memcpy(chunks_.back().get() + used, ops.data(), count * sizeof(Op));
    size_ += count;
    ops = ops.subspan(count);
  }
}

bool OpStore::equals(std::size_t at, std::span<const Op> ops) const noexcept {
  while (!ops.empty()) {
    const std::size_t count = std::min(ops.size(), chunk_ops - at % chunk_ops);
    if (std::memcmp(&(*this)[at], ops.data(), count * sizeof(Op)) != 0) return false;
    at += count;
    ops = ops.subspan(count);
  }
  return true;
}

void OpStore::move_to(const OpColumns& columns) noexcept {
  for (std::size_t c = 0; c < chunks_.size(); ++c) {
    const std::size_t from = c * chunk_ops;
    columns.put(from, {chunks_[c].get(), std::min(chunk_ops, size_ - from)});
    chunks_[c].reset();
  }
  chunks_.clear();
  size_ = 0;
}

}  // namespace prism
