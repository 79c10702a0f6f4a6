// The two readers behind KernelName. Recursive descent without backtracking; both give up (and
// leave the name not parsed) at the first thing they do not know.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "cost/kernel_name.h"

namespace prism {

class MangledParser {
 public:
  explicit MangledParser(KernelName& out) : out_(out), s_(out.text_) {}
  void parse();

 private:
  struct Depth;

  char at(std::size_t ahead = 0) const noexcept {
    return i_ + ahead < s_.size() ? s_[i_ + ahead] : '\0';
  }
  bool take(char c) noexcept;
  bool take(std::string_view text) noexcept;
  NameId fail() noexcept;
  NameId remember(NameId id);  // as a candidate for substitution

  NameId encoding();
  NameId name(NameId scope);
  NameId nested_name(NameId scope);
  NameId local_name();
  NameId unqualified_name(NameId scope);
  NameId source_name(NameId scope);
  NameId lambda(NameId scope);
  NameId operator_name(NameId scope);
  NameId substitution();
  NameId template_parameter();
  NameId with_arguments(NameId name);
  NameId type();
  NameId builtin();
  NameId literal();
  void types_until_end(std::vector<NameId>& out);
  void arguments_until_end(std::vector<NameId>& out);
  void expression();
  void abi_tags();
  void discriminator();
  std::int64_t decimal() noexcept;

  KernelName& out_;
  std::string_view s_;
  std::size_t i_ = 0;
  int depth_ = 0;
  bool failed_ = false;
  std::vector<NameId> substitutions_;
};

class SpelledParser {
 public:
  explicit SpelledParser(KernelName& out) : out_(out), s_(out.text_) {}
  void parse();

 private:
  struct Depth;

  char at(std::size_t ahead = 0) const noexcept {
    return i_ + ahead < s_.size() ? s_[i_ + ahead] : '\0';
  }
  bool take(std::string_view text) noexcept;
  void spaces() noexcept;
  NameId qualified_name();
  bool component(NameId scope, NameId& made);
  NameId type_or_value();
  NameId number();
  void list(char close, std::vector<NameId>& out);
  void skip_to_separator() noexcept;
  void skip_group() noexcept;  // a parenthesised or bracketed group, with what is in it

  KernelName& out_;
  std::string_view s_;
  std::size_t i_ = 0;
  int depth_ = 0;
  bool failed_ = false;
};

}  // namespace prism
