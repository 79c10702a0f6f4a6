#include "kineto/text_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "base/error.h"

namespace prism {
namespace {

constexpr std::size_t packed_bytes = std::size_t{1} << 18;
constexpr std::array<unsigned char, 2> gzip_magic = {0x1f, 0x8b};

}  // namespace

struct TextSource::Gzip {
  std::vector<unsigned char> packed = std::vector<unsigned char>(packed_bytes);
  z_stream stream{};
  bool inside = false;  // a member that has begun has not ended

  Gzip() {
    if (inflateInit2(&stream, 16 + MAX_WBITS) != Z_OK) throw TraceError("zlib cannot be used");
  }
  ~Gzip() { inflateEnd(&stream); }
  Gzip(const Gzip&) = delete;
  Gzip& operator=(const Gzip&) = delete;
};

TextSource::TextSource(std::string path) : path_(std::move(path)) {
  file_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (file_ < 0) fail(std::strerror(errno));
  struct stat found{};
  if (::fstat(file_, &found) == 0 && !S_ISREG(found.st_mode)) {
    ::close(std::exchange(file_, -1));
    fail("no regular file found, expected a trace in JSON");
  }
  std::array<unsigned char, 2> begin{};
  if (::pread(file_, begin.data(), begin.size(), 0) == ssize_t{begin.size()} &&
      begin == gzip_magic) {
    gzip_ = std::make_unique<Gzip>();
  }
}

TextSource::~TextSource() {
  if (file_ >= 0) ::close(file_);
}

std::size_t TextSource::read(std::span<char> buffer) {
  const std::size_t got = gzip_ ? read_gzip(buffer) : read_plain(buffer);
  offset_ += got;
  return got;
}

std::size_t TextSource::read_plain(std::span<char> buffer) {
  while (true) {
    const ssize_t got = ::read(file_, buffer.data(), buffer.size());
    if (got >= 0) return static_cast<std::size_t>(got);
    if (errno != EINTR) fail(std::strerror(errno));
  }
}

std::size_t TextSource::read_gzip(std::span<char> buffer) {
  z_stream& stream = gzip_->stream;
  stream.next_out = reinterpret_cast<Bytef*>(buffer.data());
  stream.avail_out = static_cast<uInt>(buffer.size());
  while (stream.avail_out > 0) {
    if (stream.avail_in == 0) {
      const std::size_t got =
          read_plain({reinterpret_cast<char*>(gzip_->packed.data()), gzip_->packed.size()});
      if (got == 0) {
        if (gzip_->inside) fail("gzip's data is cut off");
        break;
      }
      stream.next_in = gzip_->packed.data();
      stream.avail_in = static_cast<uInt>(got);
    }
    gzip_->inside = true;
    const int state = inflate(&stream, Z_NO_FLUSH);
    if (state == Z_STREAM_END) {  // another member may follow
      gzip_->inside = false;
      inflateReset(&stream);
    } else if (state != Z_OK && state != Z_BUF_ERROR) {
      fail(std::string("gzip's data is damaged") +
           (stream.msg != nullptr ? std::string(" (") + stream.msg + ")" : ""));
    }
  }
  return buffer.size() - stream.avail_out;
}

void TextSource::fail(const std::string& what) const { throw TraceError(path_ + ": " + what); }

}  // namespace prism
