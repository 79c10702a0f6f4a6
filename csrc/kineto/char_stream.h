// A text source, character by character, as RapidJSON's reader takes it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "kineto/text_source.h"

namespace prism {

class CharStream {
 public:
  using Ch = char;

  // `poll` is called every few MB, and may throw.
  CharStream(TextSource& source, const std::function<void()>& poll) : source_(source), poll_(poll) {
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
  // Only for streams that are written to.
  Ch* PutBegin() { return nullptr; }
  void Put(Ch) {}
  void Flush() {}
  std::size_t PutEnd(Ch*) { return 0; }

 private:
  static constexpr std::size_t buffer_bytes = std::size_t{1} << 16;
  static constexpr std::uint64_t poll_bytes = std::uint64_t{1} << 22;

  void fill() {
    if (source_.offset() >= next_poll_) {
      poll_();
      next_poll_ = source_.offset() + poll_bytes;
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
  const std::function<void()>& poll_;
  std::uint64_t next_poll_ = poll_bytes;
  std::vector<char> buffer_ = std::vector<char>(buffer_bytes);
  const char* at_ = nullptr;
  const char* end_ = nullptr;
  bool ended_ = false;
};

}  // namespace prism
