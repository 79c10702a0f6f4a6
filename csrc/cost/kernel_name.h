// A kernel's name taken apart: last identifier, template arguments, parameter types. Reads mangled
// names (the Itanium C++ ABI's grammar, as far as kernels use it) and names as c++filt and Kineto
// spell them. Never expands a substitution, so time and memory are linear in the name's length;
// whatever it cannot read it calls not parsed.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "graph/op.h"

namespace prism {

using NameId = std::uint32_t;
inline constexpr NameId no_name = std::numeric_limits<NameId>::max();

struct NameNode {
  enum class Kind : std::uint8_t { name, builtin, pointer, literal, lambda, parameter, other };
  Kind kind = Kind::other;
  std::string_view text = {};          // last identifier, without scope and arguments
  std::int64_t value = 0;              // literal; parameter: index of the template argument
  std::uint32_t bytes = 0;             // size of a value of this type; 0: not known
  DataType dtype = DataType::none;     // where the type is one
  NameId scope = no_name;              // of a member: what it stands in
  std::vector<NameId> arguments = {};  // template arguments; of a lambda: parameter types
};

class KernelName {
 public:
  // Names longer than this are not parsed (the longest of torch 2.14.1 has 6,000 bytes).
  static constexpr std::size_t max_length = 1 << 16;

  explicit KernelName(std::string_view text);  // keeps views into `text`

  bool parsed() const noexcept { return root_ != no_name; }
  std::string_view base() const noexcept { return parsed() ? nodes_[root_].text : text_; }
  std::string_view text() const noexcept { return text_; }
  const NameNode& root() const noexcept { return nodes_[root_]; }
  const NameNode& operator[](NameId id) const noexcept { return nodes_[id]; }
  // The i-th template argument of a node, or nullptr.
  const NameNode* argument(const NameNode& node, std::size_t i) const noexcept;
  const NameNode* argument(std::size_t i) const noexcept;  // of the kernel itself
  // The i-th template argument as a number, `otherwise` where it is none.
  std::int64_t number(std::size_t i, std::int64_t otherwise) const noexcept;
  // Parameter types of the kernel, empty where the name does not carry them.
  std::span<const NameId> parameters() const noexcept { return parameters_; }
  // True where `node` or what it stands in is called `text`.
  bool within(const NameNode& node, std::string_view text) const noexcept;

 private:
  friend class MangledParser;
  friend class SpelledParser;
  NameId add(NameNode node);

  std::string_view text_;
  std::vector<NameNode> nodes_;
  std::vector<NameId> parameters_;
  NameId root_ = no_name;
};

// Fills in bytes and dtype of a node from its identifier and arguments.
void describe_type(NameNode& node, std::span<const NameNode> nodes);

}  // namespace prism
