// Names as c++filt and Kineto spell them: "void at::native::f<4, float>(int, float*)".
#include <algorithm>
#include <array>
#include <utility>

#include "cost/name_parsers.h"

namespace prism {
namespace {

constexpr int max_depth = 256;
constexpr std::string_view anonymous = "(anonymous namespace)";

constexpr bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }
constexpr bool is_word(char c) noexcept {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '_' || c == '$' ||
         c == '~' || c == '.';
}

}  // namespace

struct SpelledParser::Depth {
  explicit Depth(SpelledParser& parser) : parser_(parser) {
    if (++parser_.depth_ > max_depth) parser_.failed_ = true;
  }
  ~Depth() { --parser_.depth_; }
  Depth(const Depth&) = delete;
  Depth& operator=(const Depth&) = delete;
  SpelledParser& parser_;
};

void SpelledParser::parse() {
  NameId root = no_name;
  while (!failed_ && i_ < s_.size()) {
    spaces();
    while (take("const ") || take("unsigned ")) spaces();
    const NameId id = qualified_name();
    if (failed_ || id == no_name) return;
    root = id;
    while (at() == '*' || at() == '&') ++i_;
    spaces();
    if (i_ >= s_.size()) break;
    if (at() == '(' && !s_.substr(i_).starts_with(anonymous)) break;
    // What came before was the return type.
  }
  if (failed_) return;
  if (at() == '(') {
    ++i_;
    list(')', out_.parameters_);
  }
  out_.root_ = failed_ ? no_name : root;
}

bool SpelledParser::take(std::string_view text) noexcept {
  if (!s_.substr(i_).starts_with(text)) return false;
  i_ += text.size();
  return true;
}

void SpelledParser::spaces() noexcept {
  while (at() == ' ') ++i_;
}

// Scope by scope; a scope that is a function ("f(int)::g", "f() const::g") ends where "::" follows.
NameId SpelledParser::qualified_name() {
  const Depth depth(*this);
  NameId id = no_name;
  while (!failed_) {
    NameId made = no_name;
    if (!component(id, made)) break;
    if (made != no_name) id = made;
    if (take("::")) continue;
    if (at() != '(') break;
    const std::size_t before = i_;
    skip_group();
    while (take(" const") || take(" volatile") || take("[abi:cxx11]")) {
    }
    if (take("::")) continue;
    i_ = before;
    break;
  }
  return id;
}

// False where no identifier stands here; `made` stays no_name for an anonymous namespace.
bool SpelledParser::component(NameId scope, NameId& made) {
  if (failed_ || take(anonymous) || take("<unnamed>")) return !failed_;
  NameNode node{.kind = NameNode::Kind::name, .scope = scope};
  if (take("{lambda(")) {
    node.kind = NameNode::Kind::lambda;
    list(')', node.arguments);
    while (i_ < s_.size() && at() != '}') ++i_;
    take("}");
    made = failed_ ? no_name : out_.add(std::move(node));
    return !failed_;
  }
  if (at() == '{') {
    skip_group();
    node.kind = NameNode::Kind::other;
    made = out_.add(std::move(node));
    return true;
  }
  const std::size_t begin = i_;
  if (take("operator()")) {
    node.text = s_.substr(begin, i_ - begin);
  } else {
    while (is_word(at())) ++i_;
    node.text = s_.substr(begin, i_ - begin);
    if (node.text.empty()) return false;
  }
  if (at() == '<') {
    ++i_;
    list('>', node.arguments);
  }
  made = failed_ ? no_name : out_.add(std::move(node));
  return !failed_;
}

void SpelledParser::list(char close, std::vector<NameId>& entries) {
  const Depth depth(*this);
  spaces();
  while (!failed_ && i_ < s_.size() && at() != close) {
    const NameId id = type_or_value();
    if (id != no_name) entries.push_back(id);
    skip_to_separator();
    if (at() == ',') ++i_;
    spaces();
    // A close of another kind means that the text is not what it seemed.
    if (at() != close && (at() == '>' || at() == ')' || at() == '}' || at() == ']')) failed_ = true;
  }
  if (!failed_ && i_ >= s_.size()) failed_ = true;
  if (!failed_) ++i_;
}

NameId SpelledParser::type_or_value() {
  const Depth depth(*this);
  if (failed_) return no_name;
  if (at() == '(' && !s_.substr(i_).starts_with(anonymous)) {  // "(Enum)3"
    skip_group();
    return number();
  }
  if (is_digit(at()) || (at() == '-' && is_digit(at(1)))) return number();
  while (take("const ") || take("volatile ") || take("typename ")) spaces();
  // Longest first: "unsigned long long" before "unsigned long" before "unsigned".
  constexpr std::array<std::string_view, 9> words = {
      "unsigned long long", "unsigned long", "unsigned int", "unsigned short",   "unsigned char",
      "signed char",        "long long",     "long double",  "unsigned __int128"};
  NameId id = no_name;
  for (const std::string_view word : words) {
    if (s_.substr(i_).starts_with(word) && !is_word(at(word.size()))) {
      i_ += word.size();
      id = out_.add({.kind = NameNode::Kind::builtin, .text = word});
      break;
    }
  }
  if (id == no_name) {
    if (at() == '&') ++i_;
    id = qualified_name();
    if (failed_ || id == no_name) return no_name;
    const std::string_view text = out_.nodes_[id].text;
    if (text == "true" || text == "false") {
      return out_.add({.kind = NameNode::Kind::literal, .value = text == "true" ? 1 : 0});
    }
  }
  while (take(" const") || take(" volatile")) {
  }
  if (at() == '*' || at() == '&') {
    NameNode node{.kind = NameNode::Kind::pointer};
    node.arguments.push_back(id);
    return out_.add(std::move(node));
  }
  return id;
}

NameId SpelledParser::number() {
  constexpr std::int64_t limit = std::int64_t{1} << 53;
  const bool negative = take("-");
  if (!is_digit(at())) return no_name;
  std::int64_t value = 0;
  while (is_digit(at())) {
    value = std::min(limit, value * 10 + (at() - '0'));
    ++i_;
  }
  while (is_word(at())) ++i_;  // "4ul", digits of a floating-point value
  return out_.add({.kind = NameNode::Kind::literal, .value = negative ? -value : value});
}

void SpelledParser::skip_to_separator() noexcept {
  while (i_ < s_.size()) {
    const char c = at();
    if (c == ',' || c == '>' || c == ')' || c == '}' || c == ']') return;
    if (c == '(' || c == '<' || c == '{' || c == '[') {
      skip_group();
    } else {
      ++i_;
    }
  }
}

void SpelledParser::skip_group() noexcept {
  std::size_t open = 0;
  while (i_ < s_.size()) {
    const char c = s_[i_++];
    if (c == '(' || c == '<' || c == '{' || c == '[') ++open;
    if ((c == ')' || c == '>' || c == '}' || c == ']') && --open == 0) return;
  }
  failed_ = true;
}

}  // namespace prism
