// Mangled names: https://itanium-cxx-abi.github.io/cxx-abi/abi.html, section 5.1. Rules that no
// kernel name uses (decltype, most expressions, requires clauses, virtual tables) end the parse.
#include <algorithm>
#include <utility>

#include "cost/name_parsers.h"

namespace prism {
namespace {

constexpr int max_depth = 256;

constexpr bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }
constexpr bool is_lower(char c) noexcept { return c >= 'a' && c <= 'z'; }

constexpr std::string_view builtin_text(char c) noexcept {
  switch (c) {
    case 'v':
      return "void";
    case 'w':
      return "wchar_t";
    case 'b':
      return "bool";
    case 'c':
      return "char";
    case 'a':
      return "signed char";
    case 'h':
      return "unsigned char";
    case 's':
      return "short";
    case 't':
      return "unsigned short";
    case 'i':
      return "int";
    case 'j':
      return "unsigned int";
    case 'l':
      return "long";
    case 'm':
      return "unsigned long";
    case 'x':
      return "long long";
    case 'y':
      return "unsigned long long";
    case 'n':
    case 'o':
      return "__int128";
    case 'f':
      return "float";
    case 'd':
      return "double";
    case 'e':
      return "long double";
    case 'g':
      return "__float128";
    case 'z':
      return "...";
    default:
      return {};
  }
}

}  // namespace

struct MangledParser::Depth {
  explicit Depth(MangledParser& parser) : parser_(parser) {
    if (++parser_.depth_ > max_depth) parser_.failed_ = true;
  }
  ~Depth() { --parser_.depth_; }
  Depth(const Depth&) = delete;
  Depth& operator=(const Depth&) = delete;
  MangledParser& parser_;
};

void MangledParser::parse() {
  i_ = 2;  // "_Z"
  const NameId root = name(no_name);
  if (failed_ || root == no_name) return;
  out_.root_ = root;
  std::vector<NameId> parameters;
  while (!failed_ && i_ < s_.size() && at() != '.') parameters.push_back(type());
  if (failed_) return;  // the name alone is worth having
  // The encoding of a template starts with its return type.
  const bool returns = !out_.nodes_[root].arguments.empty() && !parameters.empty();
  out_.parameters_.assign(parameters.begin() + (returns ? 1 : 0), parameters.end());
}

bool MangledParser::take(char c) noexcept {
  if (at() != c || i_ >= s_.size()) return false;
  ++i_;
  return true;
}

bool MangledParser::take(std::string_view text) noexcept {
  if (!s_.substr(i_).starts_with(text)) return false;
  i_ += text.size();
  return true;
}

NameId MangledParser::fail() noexcept {
  failed_ = true;
  return no_name;
}

NameId MangledParser::remember(NameId id) {
  if (!failed_) substitutions_.push_back(id);
  return id;
}

NameId MangledParser::encoding() {
  const Depth depth(*this);
  if (failed_) return no_name;
  const NameId id = name(no_name);
  while (!failed_ && i_ < s_.size() && at() != 'E') type();
  return id;
}

NameId MangledParser::name(NameId scope) {
  const Depth depth(*this);
  if (failed_) return no_name;
  if (at() == 'N') return nested_name(scope);
  if (at() == 'Z') return local_name();
  if (at() == 'S' && at(1) != 't') {  // only a template's name may be a substitution here
    const NameId id = substitution();
    return at() == 'I' ? with_arguments(id) : fail();
  }
  take(std::string_view("St"));
  const NameId id = unqualified_name(scope);
  if (at() != 'I') return id;
  remember(id);
  return with_arguments(id);
}

NameId MangledParser::nested_name(NameId scope) {
  take('N');
  while (take('r') || take('V') || take('K')) {
  }
  if (!take('R')) take('O');
  NameId id = scope;
  bool remembered = false;
  while (!failed_ && !take('E')) {
    remembered = true;
    if (at() == 'S' && at(1) != 't') {
      id = substitution();
      remembered = false;
      continue;
    }
    if (at() == 'T') {
      id = template_parameter();
    } else if (at() == 'I') {
      id = id == no_name ? fail() : with_arguments(id);
    } else {
      take(std::string_view("St"));
      id = unqualified_name(id);
    }
    remember(id);
    take('M');
  }
  // The whole name is remembered by whoever uses it as a type.
  if (remembered && !substitutions_.empty()) substitutions_.pop_back();
  return id == scope ? fail() : id;
}

NameId MangledParser::local_name() {
  take('Z');
  const NameId function = encoding();
  if (failed_ || !take('E')) return fail();
  if (take('s')) {  // a string literal
    discriminator();
    return function;
  }
  if (take('d')) {  // in a default argument
    decimal();
    if (!take('_')) return fail();
  }
  const NameId id = name(function);
  discriminator();
  return id;
}

NameId MangledParser::unqualified_name(NameId scope) {
  if (failed_) return no_name;
  if (at() == 'L' && is_digit(at(1))) take('L');  // internal linkage
  NameId id = no_name;
  if (is_digit(at())) {
    id = source_name(scope);
  } else if (at() == 'U' && at(1) == 'l') {
    id = lambda(scope);
  } else if (at() == 'U' && at(1) == 't') {
    i_ += 2;
    decimal();
    if (!take('_')) return fail();
    id = out_.add({.kind = NameNode::Kind::other, .scope = scope});
  } else if ((at() == 'C' || at() == 'D') && is_digit(at(1))) {
    i_ += 2;
    id = out_.add({.kind = NameNode::Kind::other, .scope = scope});
  } else if (is_lower(at()) && i_ + 1 < s_.size()) {
    id = operator_name(scope);
  } else {
    return fail();
  }
  abi_tags();
  return id;
}

NameId MangledParser::source_name(NameId scope) {
  const std::int64_t length = decimal();
  if (length <= 0 || static_cast<std::uint64_t>(length) > s_.size() - i_) return fail();
  const std::string_view text = s_.substr(i_, static_cast<std::size_t>(length));
  i_ += text.size();
  return out_.add({.kind = NameNode::Kind::name, .text = text, .scope = scope});
}

NameId MangledParser::lambda(NameId scope) {
  const Depth depth(*this);
  i_ += 2;  // "Ul"
  NameNode node{.kind = NameNode::Kind::lambda, .scope = scope};
  types_until_end(node.arguments);
  decimal();
  if (failed_ || !take('_')) return fail();
  if (node.arguments.size() == 1 && out_.nodes_[node.arguments[0]].text == "void") {
    node.arguments.clear();
  }
  return out_.add(std::move(node));
}

NameId MangledParser::operator_name(NameId scope) {
  const std::string_view text = s_.substr(i_, 2);
  i_ += 2;
  if (text == "cv") type();
  return failed_ ? no_name : out_.add({.kind = NameNode::Kind::name, .text = text, .scope = scope});
}

NameId MangledParser::substitution() {
  take('S');
  if (is_lower(at())) {  // std::allocator, std::string, ...
    const char c = at();
    ++i_;
    constexpr std::string_view known = "absiod";
    if (known.find(c) == std::string_view::npos) return fail();
    return out_.add({.kind = NameNode::Kind::name, .text = "std"});
  }
  std::size_t index = 0;
  if (at() != '_') {
    while (is_digit(at()) || (at() >= 'A' && at() <= 'Z')) {
      const char c = at();
      index = index * 36 + static_cast<std::size_t>(is_digit(c) ? c - '0' : c - 'A' + 10);
      if (index > KernelName::max_length) return fail();
      ++i_;
    }
    ++index;
  }
  if (!take('_') || index >= substitutions_.size()) return fail();
  return substitutions_[index];
}

NameId MangledParser::template_parameter() {
  take('T');
  const std::int64_t index = at() == '_' ? 0 : decimal() + 1;
  if (!take('_')) return fail();
  return out_.add({.kind = NameNode::Kind::parameter, .value = index});
}

NameId MangledParser::with_arguments(NameId id) {
  const Depth depth(*this);
  if (failed_ || id == no_name || !take('I')) return fail();
  NameNode node = out_.nodes_[id];
  node.arguments.clear();
  arguments_until_end(node.arguments);
  return failed_ ? no_name : out_.add(std::move(node));
}

void MangledParser::arguments_until_end(std::vector<NameId>& arguments) {
  const Depth depth(*this);
  while (!failed_ && !take('E')) {
    if (take('J')) {
      arguments_until_end(arguments);
    } else if (at() == 'L') {
      arguments.push_back(literal());
    } else if (take('X')) {
      expression();
      arguments.push_back(failed_ ? no_name : out_.add({.kind = NameNode::Kind::other}));
    } else {
      arguments.push_back(type());
    }
  }
}

// An operator and its operands, as far as they are literals and template parameters.
void MangledParser::expression() {
  while (!failed_ && !take('E')) {
    if (at() == 'L') {
      literal();
    } else if (at() == 'T') {
      template_parameter();
    } else if (is_lower(at()) && is_lower(at(1))) {
      i_ += 2;
    } else {
      fail();
    }
  }
}

void MangledParser::types_until_end(std::vector<NameId>& types) {
  while (!failed_ && !take('E')) types.push_back(type());
}

NameId MangledParser::literal() {
  take('L');
  if (take(std::string_view("_Z"))) {
    const NameId id = encoding();
    return take('E') ? id : fail();
  }
  type();
  const bool negative = take('n');
  const bool counted = is_digit(at());
  const std::int64_t value = decimal();
  while (!failed_ && i_ < s_.size() && at() != 'E') {  // digits of a floating-point value
    if (!is_digit(at()) && !is_lower(at())) return fail();
    ++i_;
  }
  if (failed_ || !take('E')) return fail();
  return out_.add({.kind = counted ? NameNode::Kind::literal : NameNode::Kind::other,
                   .value = negative ? -value : value});
}

NameId MangledParser::type() {
  const Depth depth(*this);
  if (failed_) return no_name;
  const char c = at();
  if (c == 'r' || c == 'V' || c == 'K') {
    while (take('r') || take('V') || take('K')) {
    }
    return remember(type());
  }
  if (take('P') || take('R') || take('O')) {
    NameNode node{.kind = NameNode::Kind::pointer};
    node.arguments.push_back(type());
    return failed_ ? no_name : remember(out_.add(std::move(node)));
  }
  if (take('C') || take('G')) return remember(type());
  if (take('F')) {
    take('Y');
    std::vector<NameId> types;
    while (!failed_ && !take('E')) {
      if ((at() == 'R' || at() == 'O') && at(1) == 'E') ++i_;
      if (at() != 'E') types.push_back(type());
    }
    return remember(out_.add({.kind = NameNode::Kind::other}));
  }
  if (take('A')) {
    decimal();
    if (!take('_')) return fail();
    return remember(type());
  }
  if (take('M')) {
    type();
    type();
    return failed_ ? no_name : remember(out_.add({.kind = NameNode::Kind::other}));
  }
  if (c == 'T') {
    const NameId id = remember(template_parameter());
    return at() == 'I' ? remember(with_arguments(id)) : id;
  }
  if (c == 'S' && at(1) != 't') {
    const NameId id = substitution();
    return at() == 'I' ? remember(with_arguments(id)) : id;
  }
  if (take('u')) return remember(source_name(no_name));
  if (c == 'U' && is_digit(at(1))) {
    take('U');
    source_name(no_name);
    return remember(type());
  }
  if (take(std::string_view("Dp"))) return remember(type());
  if (c == 'D' || is_lower(c)) return builtin();
  return remember(name(no_name));
}

NameId MangledParser::builtin() {
  if (take('D')) {
    if (take(std::string_view("Fb16_")) || take(std::string_view("F16b"))) {
      return out_.add({.kind = NameNode::Kind::builtin, .text = "BFloat16"});
    }
    if (take('h') || take(std::string_view("F16_"))) {
      return out_.add({.kind = NameNode::Kind::builtin, .text = "Half"});
    }
    if (take('n') || take('i') || take('s') || take('u') || take('a') || take('c')) {
      return out_.add({.kind = NameNode::Kind::builtin});
    }
    return fail();  // decltype, vectors
  }
  const std::string_view text = builtin_text(at());
  if (text.empty()) return fail();
  ++i_;
  return out_.add({.kind = NameNode::Kind::builtin, .text = text});
}

void MangledParser::abi_tags() {
  while (!failed_ && take('B')) source_name(no_name);
}

void MangledParser::discriminator() {
  if (at() != '_') return;
  if (is_digit(at(1))) {
    i_ += 2;
  } else if (at(1) == '_' && is_digit(at(2))) {
    i_ += 2;
    decimal();
    take('_');
  }
}

std::int64_t MangledParser::decimal() noexcept {
  constexpr std::int64_t limit = std::int64_t{1} << 53;
  std::int64_t value = 0;
  while (is_digit(at())) {
    value = std::min(limit, value * 10 + (at() - '0'));
    ++i_;
  }
  return value;
}

}  // namespace prism
