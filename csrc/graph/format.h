// The layout of a .prism file (docs/format.md), shared by its reader and its writer.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "graph/graph.h"

namespace prism::format {

static_assert(std::endian::native == std::endian::little, ".prism columns are little-endian");

// The first byte is no ASCII and the line ends catch transfers in text mode.
inline constexpr std::array<unsigned char, 8> magic{0x89, 'P', 'R', 'I', 'S', 'M', '\r', '\n'};
inline constexpr std::uint32_t version = 1;
inline constexpr std::uint64_t alignment = 64;

struct Header {
  std::array<unsigned char, 8> magic{};
  std::uint32_t version = 0;
  std::uint32_t sections = 0;
  std::uint64_t file_bytes = 0;
  std::uint64_t checksum = 0;  // XXH3-64 of header and section table with this field zero
  std::uint32_t world_size = 0;
  std::uint32_t iterations = 0;
  std::array<std::uint64_t, 3> reserved{};
};
static_assert(sizeof(Header) == 64);

struct SectionEntry {
  std::uint32_t id = 0;
  std::uint32_t element_bytes = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::uint64_t checksum = 0;  // XXH3-64
};
static_assert(sizeof(SectionEntry) == 32);

enum class Section : std::uint32_t {
  op_kind,
  op_flags,
  op_dtype,
  op_detail,
  op_ref,
  op_stream,
  op_event_stream,
  op_peer,
  op_host_ns,
  op_tag,
  op_duration_ns,
  op_bytes,
  block_offsets,
  program_offsets,
  program_blocks,
  program_call_sites,
  rank_ids,
  rank_programs,
  rank_origins,
  rank_peaks,
  binding_offsets,
  bindings,
  communicator_names,
  communicator_offsets,
  communicator_members,
  kernel_names,
  kernel_shapes,
  string_offsets,
  string_bytes,
  metadata,
};

struct SectionInfo {
  std::string_view name;
  std::uint32_t element_bytes;
};

// By Section; the id in the file is the index.
inline constexpr std::array<SectionInfo, 30> sections{{
    {"op_kind", 1},
    {"op_flags", 1},
    {"op_dtype", 1},
    {"op_detail", 1},
    {"op_ref", 4},
    {"op_stream", 2},
    {"op_event_stream", 2},
    {"op_peer", 4},
    {"op_host_ns", 4},
    {"op_tag", 4},
    {"op_duration_ns", 8},
    {"op_bytes", 8},
    {"block_offsets", 8},
    {"program_offsets", 8},
    {"program_blocks", 4},
    {"program_call_sites", 4},
    {"rank_ids", 4},
    {"rank_programs", 4},
    {"rank_origins", 1},
    {"rank_peaks", sizeof(MemoryPeaks)},
    {"binding_offsets", 8},
    {"bindings", sizeof(Binding)},
    {"communicator_names", 4},
    {"communicator_offsets", 8},
    {"communicator_members", 4},
    {"kernel_names", 4},
    {"kernel_shapes", sizeof(KernelShape)},
    {"string_offsets", 8},
    {"string_bytes", 1},
    {"metadata", 1},
}};
static_assert(static_cast<std::size_t>(Section::metadata) + 1 == sections.size());
static_assert(sizeof(MemoryPeaks) == 32 && sizeof(Binding) == 8);

inline constexpr std::uint64_t preamble_bytes =
    sizeof(Header) + sections.size() * sizeof(SectionEntry);  // header and section table

constexpr std::uint64_t aligned(std::uint64_t bytes) noexcept {
  return (bytes + alignment - 1) / alignment * alignment;
}
static_assert(aligned(preamble_bytes) == preamble_bytes);

}  // namespace prism::format
