// A text source, character by character, as RapidJSON's reader takes it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kineto/text_source.h"

namespace prism {

class CharStream {
 public:
  using Ch = char;

  // `poll` is called every few MB, and may throw; `tokens` counts what the reader has found.
  CharStream(TextSource& source, const std::uint64_t& tokens, const std::function<void()>& poll)
      : source_(source), tokens_(tokens), poll_(poll) {
    fill();
  }
  Ch Peek() const noexcept { return *at_; }
  Ch Take() {
    const Ch c = *at_;
    if (++at_ == end_) fill();
    return c;
  }
  std::size_t Tell() const noexcept {
    return source_.offset() - (ended_ ? 0 : static_cast<std::size_t>(end_ - at_));
  }
  // Whether the text is at its end; a zero byte in it looks the same to RapidJSON.
  bool ended() const noexcept { return ended_; }
  // Only for streams that are written to.
  Ch* PutBegin() { return nullptr; }
  void Put(Ch) {}
  void Flush() {}
  std::size_t PutEnd(Ch*) { return 0; }

 private:
  static constexpr std::size_t buffer_bytes = std::size_t{1} << 16;
  static constexpr std::uint64_t poll_bytes = std::uint64_t{1} << 22;
  // RapidJSON holds a whole token: no text of a trace, and no space between two, is as long.
  static constexpr std::uint64_t most_token_bytes = std::uint64_t{1} << 24;

  void fill() {
    if (source_.offset() >= next_poll_) {
      poll_();
      next_poll_ = source_.offset() + poll_bytes;
    }
    if (tokens_ != last_tokens_) {
      last_tokens_ = tokens_;
      token_begin_ = source_.offset();
    } else if (source_.offset() - token_begin_ > most_token_bytes) {
      source_.fail("a text of more than 16 MiB found at byte " + std::to_string(token_begin_) +
                   " of its text; expected a trace of torch's profiler");
    }
    const std::size_t got = source_.read(buffer_);
    if (got == 0) {
      buffer_[0] = '\0';  // RapidJSON's end; whoever takes it finds it again
      at_ = buffer_.data();
      end_ = at_ + 1;
      ended_ = true;
      return;
    }
    at_ = buffer_.data();
    end_ = at_ + got;
  }

  TextSource& source_;
  const std::uint64_t& tokens_;
  const std::function<void()>& poll_;
  std::uint64_t next_poll_ = poll_bytes;
  std::uint64_t last_tokens_ = 0;
  std::uint64_t token_begin_ = 0;  // at most a buffer behind it
  std::vector<char> buffer_ = std::vector<char>(buffer_bytes);
  const char* at_ = nullptr;
  const char* end_ = nullptr;
  bool ended_ = false;
};

}  // namespace prism
