#include "cost/kernel_name.h"

#include <array>
#include <string>
#include <utility>

#include "cost/name_parsers.h"

namespace prism {
namespace {

struct KnownType {
  std::string_view text;
  std::uint32_t bytes;
  DataType dtype;
};

constexpr std::array known_types = {
    KnownType{"bool", 1, DataType::uint8},
    KnownType{"char", 1, DataType::int8},
    KnownType{"signed char", 1, DataType::int8},
    KnownType{"unsigned char", 1, DataType::uint8},
    KnownType{"short", 2, DataType::none},
    KnownType{"unsigned short", 2, DataType::none},
    KnownType{"int", 4, DataType::int32},
    KnownType{"unsigned int", 4, DataType::uint32},
    KnownType{"long", 8, DataType::int64},
    KnownType{"unsigned long", 8, DataType::uint64},
    KnownType{"long long", 8, DataType::int64},
    KnownType{"unsigned long long", 8, DataType::uint64},
    KnownType{"__int128", 16, DataType::none},
    KnownType{"float", 4, DataType::float32},
    KnownType{"double", 8, DataType::float64},
    KnownType{"Half", 2, DataType::float16},
    KnownType{"__half", 2, DataType::float16},
    KnownType{"half_t", 2, DataType::float16},
    KnownType{"BFloat16", 2, DataType::bfloat16},
    KnownType{"__nv_bfloat16", 2, DataType::bfloat16},
    KnownType{"bfloat16_t", 2, DataType::bfloat16},
    KnownType{"Float8_e4m3fn", 1, DataType::float8e4m3},
    KnownType{"Float8_e4m3fnuz", 1, DataType::float8e4m3},
    KnownType{"Float8_e5m2", 1, DataType::float8e5m2},
    KnownType{"Float8_e5m2fnuz", 1, DataType::float8e5m2},
    KnownType{"Float8_e8m0fnu", 1, DataType::none},
};

}  // namespace

void describe_type(NameNode& node, std::span<const NameNode> nodes) {
  for (const KnownType& known : known_types) {
    if (node.text == known.text) {
      node.bytes = known.bytes;
      node.dtype = known.dtype;
      return;
    }
  }
  if (node.arguments.empty()) return;
  const NameNode& first = nodes[node.arguments[0]];
  if (node.text == "complex") node.bytes = 2 * first.bytes;
  const bool opaque = node.text == "OpaqueType" && first.kind == NameNode::Kind::literal;
  if (opaque && first.value > 0 && first.value <= 64) {
    node.bytes = static_cast<std::uint32_t>(first.value);
  }
}

KernelName::KernelName(std::string_view text) : text_(text) {
  if (text.empty() || text.size() > max_length) return;
  if (text.starts_with("_Z")) {
    MangledParser(*this).parse();
  } else {
    SpelledParser(*this).parse();
  }
}

NameId KernelName::add(NameNode node) {
  describe_type(node, nodes_);
  nodes_.push_back(std::move(node));
  return static_cast<NameId>(nodes_.size() - 1);
}

const NameNode* KernelName::argument(const NameNode& node, std::size_t i) const noexcept {
  return i < node.arguments.size() ? &nodes_[node.arguments[i]] : nullptr;
}

const NameNode* KernelName::argument(std::size_t i) const noexcept {
  return parsed() ? argument(root(), i) : nullptr;
}

std::int64_t KernelName::number(std::size_t i, std::int64_t otherwise) const noexcept {
  const NameNode* node = argument(i);
  return node != nullptr && node->kind == NameNode::Kind::literal ? node->value : otherwise;
}

bool KernelName::within(const NameNode& node, std::string_view text) const noexcept {
  const NameNode* at = &node;
  // Scopes are older than what stands in them, so the walk ends.
  while (at->text != text) {
    if (at->scope == no_name) return false;
    at = &nodes_[at->scope];
  }
  return true;
}

}  // namespace prism
