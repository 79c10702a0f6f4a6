#include "graph/tables.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "graph/op_check.h"

namespace prism {
namespace {

void set(Sources& sources, format::Section section, std::span<const std::byte> bytes) {
  sources[static_cast<std::size_t>(section)] = bytes;
}

std::uint32_t new_id(std::size_t size, const char* what) {
  if (size >= ContentTable::none) throw GraphError(std::string("more than 2^32 ") + what);
  return static_cast<std::uint32_t>(size);
}

void check_members(std::span<const std::uint32_t> members, std::uint32_t world_size,
                   std::string_view name) {
  const auto fail = [&](const std::string& what) {
    throw GraphError("communicator '" + std::string(name) + "': " + what);
  };
  if (members.empty()) fail("no members given, expected at least one");
  bool rising = true;
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (members[i] >= world_size) {
      fail("member " + std::to_string(members[i]) + " found, expected ranks below " +
           std::to_string(world_size));
    }
    rising = rising && (i == 0 || members[i - 1] < members[i]);
  }
  if (rising) return;
  std::vector<std::uint32_t> sorted(members.begin(), members.end());
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end()) fail("rank " + std::to_string(*twice) + " is named twice");
}

}  // namespace

StringTable::StringTable() {
  offsets_.push(0);
  intern("");
}

std::string_view StringTable::operator[](std::uint32_t id) const noexcept {
  return {bytes_.data() + offsets_[id], offsets_[id + 1] - offsets_[id]};
}

std::uint32_t StringTable::intern(std::string_view text) {
  const std::uint64_t hash = hash64(std::as_bytes(std::span(text)));
  const std::uint32_t found =
      table_.find(hash, [&](std::uint32_t id) { return (*this)[id] == text; });
  if (found != ContentTable::none) return found;
  const std::uint32_t id = new_id(size(), "strings");
  bytes_.append(std::span(text));
  offsets_.push(bytes_.size());
  table_.insert(hash, id);
  return id;
}

void StringTable::sources(Sources& sources) const {
  set(sources, format::Section::string_offsets, offsets_.raw());
  set(sources, format::Section::string_bytes, bytes_.raw());
}

std::uint32_t KernelTable::intern(std::uint32_t name, const KernelShape& shape) {
  const std::uint64_t hash = hash64(std::as_bytes(std::span(&shape, 1)), name);
  const std::uint32_t found = table_.find(
      hash, [&](std::uint32_t id) { return names_[id] == name && shapes_[id] == shape; });
  if (found != ContentTable::none) return found;
  const std::uint32_t id = new_id(size(), "kernels");
  names_.push(name);
  shapes_.push(shape);
  table_.insert(hash, id);
  return id;
}

void KernelTable::sources(Sources& sources) const {
  set(sources, format::Section::kernel_names, names_.raw());
  set(sources, format::Section::kernel_shapes, shapes_.raw());
}

CommunicatorTable::CommunicatorTable() { offsets_.push(0); }

std::span<const std::uint32_t> CommunicatorTable::members(std::uint32_t id) const noexcept {
  return members_.view(offsets_[id], offsets_[id + 1] - offsets_[id]);
}

std::uint32_t CommunicatorTable::intern(std::uint32_t name, std::span<const std::uint32_t> members,
                                        std::uint32_t world_size, std::string_view text) {
  const std::uint64_t hash = hash64(std::as_bytes(members), name);
  const std::uint32_t found = table_.find(hash, [&](std::uint32_t id) {
    return names_[id] == name && std::ranges::equal(this->members(id), members);
  });
  if (found != ContentTable::none) return found;
  check_members(members, world_size, text);
  const std::uint32_t id = new_id(size(), "communicators");
  names_.push(name);
  members_.append(members);
  offsets_.push(members_.size());
  table_.insert(hash, id);
  return id;
}

void CommunicatorTable::sources(Sources& sources) const {
  set(sources, format::Section::communicator_names, names_.raw());
  set(sources, format::Section::communicator_offsets, offsets_.raw());
  set(sources, format::Section::communicator_members, members_.raw());
}

}  // namespace prism
