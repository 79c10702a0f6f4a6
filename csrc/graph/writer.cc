#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "graph/image.h"

namespace prism {
namespace {

using format::Header;
using format::SectionEntry;

// A file that is renamed to its place when all of it was written, and removed otherwise.
class PendingFile {
 public:
  explicit PendingFile(const std::filesystem::path& target) : target_(target) {
    static std::atomic<unsigned> counter{0};
    const std::string name = '.' + target.filename().string() + '.' + std::to_string(::getpid()) +
                             '.' + std::to_string(counter++) + ".partial";
    pending_ = target.parent_path() / name;
    fd_ = ::open(pending_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd_ < 0) fail(errno);
  }
  ~PendingFile() {
    if (fd_ >= 0) ::close(fd_);
    if (!done_) ::unlink(pending_.c_str());
  }
  PendingFile(const PendingFile&) = delete;
  PendingFile& operator=(const PendingFile&) = delete;

  void write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t written = ::write(fd_, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) fail(written < 0 ? errno : EIO);
      bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
  }

  void commit() {
    if (::fsync(fd_) != 0 && errno != EINVAL) fail(errno);  // EINVAL: a file system without it
    if (::close(std::exchange(fd_, -1)) != 0) fail(errno);
    if (::rename(pending_.c_str(), target_.c_str()) != 0) fail(errno);
    done_ = true;
  }

 private:
  // A constructor that throws runs no destructor: there is no file yet in that case.
  [[noreturn]] void fail(int error) const {
    throw GraphError(target_.string() + ": cannot be written: " + std::strerror(error));
  }

  std::filesystem::path target_, pending_;
  int fd_ = -1;
  bool done_ = false;
};

}  // namespace

Graph write_image(std::uint32_t world_size, std::uint32_t iterations, const Sources& sources,
                  const std::function<void(format::Section)>& written) {
  std::uint64_t total = format::preamble_bytes;
  for (const auto& source : sources) total = format::aligned(total) + source.size();
  total = format::aligned(total);

  auto* image = static_cast<std::byte*>(std::malloc(total));
  if (image == nullptr) throw std::bad_alloc();
  auto storage = Storage::take(image, total);

  std::array<SectionEntry, format::sections.size()> table;
  std::uint64_t end = format::preamble_bytes;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const std::span<const std::byte> source = sources[i];
    const std::uint64_t offset = format::aligned(end);
    std::memset(image + end, 0, offset - end);
    if (!source.empty()) std::memcpy(image + offset, source.data(), source.size());
    end = offset + source.size();
    table[i] = {static_cast<std::uint32_t>(i), format::sections[i].element_bytes, offset,
                source.size(), hash64({image + offset, source.size()})};
    if (written) written(static_cast<format::Section>(i));
  }
  std::memset(image + end, 0, total - end);

  Header header;
  header.magic = format::magic;
  header.version = format::version;
  header.sections = static_cast<std::uint32_t>(sources.size());
  header.file_bytes = total;
  header.world_size = world_size;
  header.iterations = iterations;
  std::memcpy(image, &header, sizeof header);
  std::memcpy(image + sizeof header, table.data(), sizeof table);
  header.checksum = hash64({image, format::preamble_bytes});
  std::memcpy(image, &header, sizeof header);

  auto impl = std::make_shared<Graph::Impl>();
  impl->attach(std::move(storage));
  return GraphAccess::make(std::move(impl));
}

void Graph::save(const std::filesystem::path& path) const {
  PendingFile file(path);
  file.write(bytes());
  file.commit();
}

}  // namespace prism
