// Strings, kernels and communicators of a graph under construction, each stored once by content.
// For csrc/graph and csrc/kineto.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "graph/buffer.h"
#include "graph/content_table.h"
#include "graph/image.h"

namespace prism {

class StringTable {
 public:
  StringTable();
  std::uint32_t intern(std::string_view text);
  std::size_t size() const noexcept { return offsets_.size() - 1; }
  std::string_view operator[](std::uint32_t id) const noexcept;
  void sources(Sources& sources) const;

 private:
  Buffer<std::uint64_t> offsets_;
  Buffer<char> bytes_;
  ContentTable table_;
};

class KernelTable {
 public:
  std::uint32_t intern(std::uint32_t name, const KernelShape& shape);
  std::size_t size() const noexcept { return names_.size(); }
  void sources(Sources& sources) const;

 private:
  Buffer<std::uint32_t> names_;
  Buffer<KernelShape> shapes_;
  ContentTable table_;
};

class CommunicatorTable {
 public:
  CommunicatorTable();
  // GraphError if the members are none, not below world_size, or not distinct.
  std::uint32_t intern(std::uint32_t name, std::span<const std::uint32_t> members,
                       std::uint32_t world_size, std::string_view text);
  std::size_t size() const noexcept { return names_.size(); }
  std::uint32_t name(std::uint32_t id) const noexcept { return names_[id]; }
  std::span<const std::uint32_t> members(std::uint32_t id) const noexcept;
  void sources(Sources& sources) const;

 private:
  Buffer<std::uint32_t> names_;
  Buffer<std::uint64_t> offsets_;
  Buffer<std::uint32_t> members_;
  ContentTable table_;
};

}  // namespace prism
