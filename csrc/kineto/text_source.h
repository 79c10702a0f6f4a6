// The text of a file, gzip or not, read a buffer at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace prism {

class TextSource {
 public:
  // TraceError: the file cannot be opened.
  explicit TextSource(std::string path);
  ~TextSource();
  TextSource(const TextSource&) = delete;
  TextSource& operator=(const TextSource&) = delete;

  // Fills `buffer` as far as there is text; 0 at the end. TraceError: reading fails, or gzip's
  // bytes are damaged or cut off.
  std::size_t read(std::span<char> buffer);

  // Of the text, up to what was read.
  std::uint64_t offset() const noexcept { return offset_; }

  // TraceError: `what`, behind the path.
  [[noreturn]] void fail(const std::string& what) const;

 private:
  struct Gzip;

  std::size_t read_plain(std::span<char> buffer);
  std::size_t read_gzip(std::span<char> buffer);

  std::string path_;
  int file_ = -1;
  std::uint64_t offset_ = 0;
  std::unique_ptr<Gzip> gzip_;
};

}  // namespace prism
