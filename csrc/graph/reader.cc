// Opens a graph: layout first, then checksums, then contents. Nothing is followed, and nothing is
// allocated by a size found in the file, before it was checked against the file's length.
#include <cstring>
#include <string>

#include "base/error.h"
#include "base/hash.h"
#include "graph/image.h"

namespace prism {
namespace {

using format::Header;
using format::SectionEntry;

class Layout {
 public:
  Layout(std::span<const std::byte> bytes, std::string_view origin)
      : bytes_(bytes), origin_(origin) {}

  Header check() const {
    if (bytes_.size() < sizeof(Header)) {
      fail(number(bytes_.size()) + " bytes found, a .prism file has at least " +
           number(format::preamble_bytes));
    }
    Header header;
    std::memcpy(&header, bytes_.data(), sizeof header);
    if (header.magic != format::magic) fail("does not begin as a .prism file does");
    if (header.version > format::version) {
      throw GraphFormatError(std::string(origin_) + ": format version " + number(header.version) +
                             " found, this prismcore reads up to version " +
                             number(format::version) +
                             "; upgrade prismcore, or collect the job again with this one");
    }
    if (header.version == 0) fail("format version 0 found, expected 1");
    expect("length of the file in its header", header.file_bytes, bytes_.size());
    expect("number of sections", header.sections, format::sections.size());
    if (bytes_.size() < format::preamble_bytes) {
      fail(number(bytes_.size()) + " bytes found, the section table ends at " +
           number(format::preamble_bytes));
    }
    if (preamble_checksum(header) != header.checksum) fail("checksum of the header is wrong");
    for (const std::uint64_t word : header.reserved) expect("reserved header word", word, 0);
    check_sections();
    return header;
  }

 private:
  static std::string number(std::uint64_t value) { return std::to_string(value); }

  [[noreturn]] void fail(const std::string& what) const {
    throw GraphFormatError(std::string(origin_) + ": " + what +
                           "; the file is damaged or no .prism file: copy or collect it again");
  }

  void expect(const std::string& what, std::uint64_t found, std::uint64_t expected) const {
    if (found == expected) return;
    fail(what + ": " + number(found) + " found, " + number(expected) + " expected");
  }

  std::uint64_t preamble_checksum(Header header) const {
    header.checksum = 0;
    std::array<std::byte, format::preamble_bytes> preamble;
    std::memcpy(preamble.data(), bytes_.data(), preamble.size());
    std::memcpy(preamble.data(), &header, sizeof header);
    return hash64(preamble);
  }

  // Sections follow each other in order, each at the next aligned place, zeros between: so no
  // two overlap and every byte of the file is accounted for.
  void check_sections() const {
    std::uint64_t end = format::preamble_bytes;
    for (std::size_t i = 0; i < format::sections.size(); ++i) {
      const auto& [section_name, element_bytes] = format::sections[i];
      const std::string what = "section " + std::string(section_name);
      SectionEntry entry;
      std::memcpy(&entry, bytes_.data() + sizeof(Header) + i * sizeof entry, sizeof entry);
      expect(what + ": id", entry.id, i);
      expect(what + ": element size", entry.element_bytes, element_bytes);
      expect(what + ": offset", entry.offset, format::aligned(end));
      if (entry.offset > bytes_.size() || entry.bytes > bytes_.size() - entry.offset) {
        fail(what + ": " + number(entry.bytes) + " bytes at " + number(entry.offset) +
             " found, the file ends at " + number(bytes_.size()));
      }
      if (entry.bytes % element_bytes != 0) {
        fail(what + ": " + number(entry.bytes) + " bytes found, expected a multiple of " +
             number(element_bytes));
      }
      check_zeros(end, entry.offset);
      end = entry.offset + entry.bytes;
      if (hash64(bytes_.subspan(entry.offset, entry.bytes)) != entry.checksum) {
        fail(what + ": checksum is wrong");
      }
    }
    expect("length of the file", bytes_.size(), format::aligned(end));
    check_zeros(end, bytes_.size());
  }

  void check_zeros(std::uint64_t from, std::uint64_t to) const {
    for (std::uint64_t i = from; i < to; ++i) {
      if (bytes_[i] != std::byte{0}) fail("byte " + number(i) + " between sections is not zero");
    }
  }

  std::span<const std::byte> bytes_;
  std::string_view origin_;
};

template <class T>
void set_column(std::span<const T>& column, std::span<const std::byte> bytes) {
  column = {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
}

}  // namespace

void Graph::Impl::attach(std::shared_ptr<const Storage> buffer) {
  storage = std::move(buffer);
  const std::span<const std::byte> all = storage->bytes();
  Header header;
  std::memcpy(&header, all.data(), sizeof header);
  world_size = header.world_size;
  iterations = header.iterations;
  const auto bytes = [&](format::Section section) {
    SectionEntry entry;
    std::memcpy(&entry,
                all.data() + sizeof header + static_cast<std::size_t>(section) * sizeof entry,
                sizeof entry);
    return all.subspan(entry.offset, entry.bytes);
  };
  set_column(op_kind, bytes(format::Section::op_kind));
  set_column(op_flags, bytes(format::Section::op_flags));
  set_column(op_dtype, bytes(format::Section::op_dtype));
  set_column(op_detail, bytes(format::Section::op_detail));
  set_column(op_ref, bytes(format::Section::op_ref));
  set_column(op_stream, bytes(format::Section::op_stream));
  set_column(op_event_stream, bytes(format::Section::op_event_stream));
  set_column(op_peer, bytes(format::Section::op_peer));
  set_column(op_host_ns, bytes(format::Section::op_host_ns));
  set_column(op_tag, bytes(format::Section::op_tag));
  set_column(op_duration_ns, bytes(format::Section::op_duration_ns));
  set_column(op_bytes, bytes(format::Section::op_bytes));
  set_column(block_offsets, bytes(format::Section::block_offsets));
  set_column(program_offsets, bytes(format::Section::program_offsets));
  set_column(program_blocks, bytes(format::Section::program_blocks));
  set_column(program_call_sites, bytes(format::Section::program_call_sites));
  set_column(rank_ids, bytes(format::Section::rank_ids));
  set_column(rank_programs, bytes(format::Section::rank_programs));
  set_column(rank_origins, bytes(format::Section::rank_origins));
  set_column(rank_peaks, bytes(format::Section::rank_peaks));
  set_column(binding_offsets, bytes(format::Section::binding_offsets));
  set_column(bindings, bytes(format::Section::bindings));
  set_column(communicator_names, bytes(format::Section::communicator_names));
  set_column(communicator_offsets, bytes(format::Section::communicator_offsets));
  set_column(communicator_members, bytes(format::Section::communicator_members));
  set_column(kernel_names, bytes(format::Section::kernel_names));
  set_column(kernel_shapes, bytes(format::Section::kernel_shapes));
  set_column(string_offsets, bytes(format::Section::string_offsets));
  set_column(string_bytes, bytes(format::Section::string_bytes));
  set_column(metadata, bytes(format::Section::metadata));
}

Graph read_image(std::shared_ptr<const Storage> storage, std::string_view origin) {
  Layout(storage->bytes(), origin).check();
  auto impl = std::make_shared<Graph::Impl>();
  impl->attach(std::move(storage));
  check_contents(*impl, origin);
  return GraphAccess::make(std::move(impl));
}

Graph Graph::open(const std::filesystem::path& path) {
  return read_image(Storage::map(path), path.string());
}

Graph Graph::from_bytes(std::vector<std::byte> bytes) {
  return read_image(Storage::hold(std::move(bytes)), "graph bytes");
}

}  // namespace prism
