// A graph as it lies in memory: the buffer and the columns in it. Internal to csrc/graph.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

#include "graph/format.h"
#include "graph/graph.h"
#include "graph/op_store.h"

namespace prism {

// Keeps the bytes of a graph alive: a mapping, a vector, or memory from malloc.
class Storage {
 public:
  static std::shared_ptr<const Storage> map(const std::filesystem::path& path);
  static std::shared_ptr<const Storage> hold(std::vector<std::byte> bytes);
  static std::shared_ptr<const Storage> take(void* allocated, std::size_t size);  // frees it

  virtual ~Storage() = default;
  std::span<const std::byte> bytes() const noexcept { return bytes_; }

 protected:
  std::span<const std::byte> bytes_;
};

struct Graph::Impl {
  std::shared_ptr<const Storage> storage;
  std::uint32_t world_size = 0;
  std::uint32_t iterations = 0;

  std::span<const std::uint8_t> op_kind, op_flags, op_dtype, op_detail;
  std::span<const std::uint32_t> op_ref;
  std::span<const std::uint16_t> op_stream, op_event_stream;
  std::span<const std::uint32_t> op_peer, op_host_ns, op_tag;
  std::span<const std::int64_t> op_duration_ns, op_bytes;
  std::span<const std::uint64_t> block_offsets, program_offsets;
  std::span<const std::uint32_t> program_blocks, program_call_sites;
  std::span<const std::uint32_t> rank_ids, rank_programs;
  std::span<const std::uint8_t> rank_origins;
  std::span<const MemoryPeaks> rank_peaks;
  std::span<const std::uint64_t> binding_offsets;
  std::span<const Binding> bindings;
  std::span<const std::uint32_t> communicator_names;
  std::span<const std::uint64_t> communicator_offsets;
  std::span<const std::uint32_t> communicator_members;
  std::span<const std::uint32_t> kernel_names;
  std::span<const KernelShape> kernel_shapes;
  std::span<const std::uint64_t> string_offsets;
  std::span<const char> string_bytes, metadata;

  // Sets the columns from a section table that is known to be sound.
  void attach(std::shared_ptr<const Storage> buffer);
  Op op(std::uint64_t index) const noexcept;
  std::string_view string(std::uint32_t id) const noexcept;
  // Index of a rank in the rank columns; rank_ids.size() if absent.
  std::size_t find_rank(std::uint32_t rank) const noexcept;
  std::span<const std::uint32_t> blocks_of(std::uint32_t program) const noexcept;
  std::span<const std::uint32_t> rank_classes() const;  // by program

 private:
  mutable std::once_flag classes_known_;
  mutable std::vector<std::uint32_t> classes_;
};

// Makes graphs from buffers; what Graph's own constructor is not open for.
struct GraphAccess {
  static Graph make(std::shared_ptr<const Graph::Impl> impl) { return Graph(std::move(impl)); }
  static const Graph::Impl& impl(const Graph& graph) { return *graph.impl_; }
};

// Checks layout, checksums and every index a reader follows; GraphFormatError begins with `origin`.
Graph read_image(std::shared_ptr<const Storage> storage, std::string_view origin);
// The part of it behind layout and checksums.
void check_contents(const Graph::Impl& graph, std::string_view origin);

// Writes a graph from its sections, by Section; those of ops are left out and filled by `put_ops`.
using Sources = std::array<std::span<const std::byte>, format::sections.size()>;
Graph write_image(std::uint32_t world_size, std::uint32_t iterations, const Sources& sources,
                  std::size_t num_ops, const std::function<void(const OpColumns&)>& put_ops);

}  // namespace prism
