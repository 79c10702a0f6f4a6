#include "intercept/part.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "intercept/combine.h"
#include "intercept/device_port.h"

namespace prism::intercept {
namespace {

// Encoded: how many pieces; of each, where it lies and its bytes; then the bytes of all.
struct Entry {
  std::int64_t at = 0;
  std::int64_t bytes = 0;
};

constexpr std::int64_t largest_element = 8;

}  // namespace

Part::Encoded Part::encode(const void* from, std::int64_t bytes,
                           const UniformReduction* reduction) {
  const auto* base = static_cast<const std::byte*>(from);
  std::vector<Entry> entries;
  std::int64_t all = 0;
  if (bytes > 0) {
    for (const Touched& part : device_port().written(from, bytes)) {
      const auto* begin = static_cast<const std::byte*>(part.address);
      if (is_zero(begin, part.bytes)) continue;
      // Whole elements, whatever they are.
      std::int64_t at = (begin - base) / largest_element * largest_element;
      const std::int64_t end = begin - base + part.bytes;
      const std::int64_t whole = (end + largest_element - 1) / largest_element * largest_element;
      if (!entries.empty()) at = std::max(at, entries.back().at + entries.back().bytes);
      entries.push_back({at, std::min(whole, bytes) - at});
      all += entries.back().bytes;
    }
  }
  auto encoded = std::make_shared<std::vector<std::byte>>();
  const auto count = static_cast<std::int64_t>(entries.size());
  const std::size_t head = sizeof count + entries.size() * sizeof(Entry);
  encoded->resize(head + static_cast<std::size_t>(all));
  std::memcpy(encoded->data(), &count, sizeof count);
  if (count == 0) return encoded;
  std::memcpy(encoded->data() + sizeof count, entries.data(), entries.size() * sizeof(Entry));
  std::byte* out = encoded->data() + head;
  for (const Entry& entry : entries) {
    std::memcpy(out, base + entry.at, static_cast<std::size_t>(entry.bytes));
    out += entry.bytes;
  }
  if (reduction != nullptr) {
    premultiply(*reduction, encoded->data() + head,
                all / static_cast<std::int64_t>(size_of(reduction->dtype)));
  }
  return encoded;
}

Part::Part(Encoded encoded) : kept_(std::move(encoded)) {
  if (kept_ == nullptr || kept_->size() < sizeof(std::int64_t)) return;
  const std::span<const std::byte> all(*kept_);
  std::int64_t count = 0;
  std::memcpy(&count, all.data(), sizeof count);
  const std::size_t room = (all.size() - sizeof count) / sizeof(Entry);
  if (count < 0 || static_cast<std::size_t>(count) > room) return;
  std::size_t at = sizeof count + static_cast<std::size_t>(count) * sizeof(Entry);
  pieces_.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    Entry entry;
    std::memcpy(&entry, all.data() + sizeof count + static_cast<std::size_t>(i) * sizeof(Entry),
                sizeof entry);
    const auto bytes = static_cast<std::size_t>(entry.bytes);
    if (entry.bytes < 0 || entry.at < 0 || bytes > all.size() - at) return;
    pieces_.push_back({entry.at, all.subspan(at, bytes)});
    at += bytes;
  }
}

void Part::read(std::int64_t begin, std::span<std::byte> to) const {
  std::fill(to.begin(), to.end(), std::byte{0});
  const std::int64_t end = begin + static_cast<std::int64_t>(to.size());
  for (const Piece& piece : pieces_) {
    const std::int64_t piece_end = piece.at + static_cast<std::int64_t>(piece.bytes.size());
    const std::int64_t from = std::max(begin, piece.at);
    const std::int64_t until = std::min(end, piece_end);
    if (from >= until) continue;
    std::memcpy(to.data() + (from - begin), piece.bytes.data() + (from - piece.at),
                static_cast<std::size_t>(until - from));
  }
}

void Part::write(void* to, std::int64_t bytes) const {
  auto* out = static_cast<std::byte*>(to);
  for (const Piece& piece : pieces_) {
    const auto size = static_cast<std::int64_t>(piece.bytes.size());
    const std::int64_t count = std::min(size, bytes - piece.at);
    if (count <= 0) continue;
    std::memcpy(out + piece.at, piece.bytes.data(), static_cast<std::size_t>(count));
    device_port().note_written(out + piece.at, count);
  }
}

}  // namespace prism::intercept
