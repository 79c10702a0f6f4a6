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

namespace {

using Table = std::array<SectionEntry, format::sections.size()>;

template <class T>
T* column(std::byte* image, const Table& table, format::Section section) {
  return reinterpret_cast<T*>(image + table[static_cast<std::size_t>(section)].offset);
}

OpColumns op_columns(std::byte* image, const Table& table) {
  using format::Section;
  OpColumns columns;
  columns.kind = column<std::uint8_t>(image, table, Section::op_kind);
  columns.flags = column<std::uint8_t>(image, table, Section::op_flags);
  columns.dtype = column<std::uint8_t>(image, table, Section::op_dtype);
  columns.detail = column<std::uint8_t>(image, table, Section::op_detail);
  columns.ref = column<std::uint32_t>(image, table, Section::op_ref);
  columns.stream = column<std::uint16_t>(image, table, Section::op_stream);
  columns.event_stream = column<std::uint16_t>(image, table, Section::op_event_stream);
  columns.peer = column<std::uint32_t>(image, table, Section::op_peer);
  columns.host_ns = column<std::uint32_t>(image, table, Section::op_host_ns);
  columns.tag = column<std::uint32_t>(image, table, Section::op_tag);
  columns.duration_ns = column<std::int64_t>(image, table, Section::op_duration_ns);
  columns.bytes = column<std::int64_t>(image, table, Section::op_bytes);
  return columns;
}

}  // namespace

Graph write_image(std::uint32_t world_size, std::uint32_t iterations, const Sources& sources,
                  std::size_t num_ops, const std::function<void(const OpColumns&)>& put_ops) {
  Table table;
  std::uint64_t end = format::preamble_bytes;
  for (std::size_t i = 0; i < table.size(); ++i) {
    const std::uint32_t element_bytes = format::sections[i].element_bytes;
    const bool of_ops = i <= static_cast<std::size_t>(format::Section::op_bytes);
    const std::uint64_t bytes = of_ops ? num_ops * element_bytes : sources[i].size();
    table[i] = {static_cast<std::uint32_t>(i), element_bytes, format::aligned(end), bytes, 0};
    end = table[i].offset + bytes;
  }
  const std::uint64_t total = format::aligned(end);
  auto* image = static_cast<std::byte*>(std::malloc(total));
  if (image == nullptr) throw std::bad_alloc();
  auto storage = Storage::take(image, total);

  put_ops(op_columns(image, table));
  end = format::preamble_bytes;
  for (std::size_t i = 0; i < table.size(); ++i) {
    SectionEntry& entry = table[i];
    std::memset(image + end, 0, entry.offset - end);
    if (!sources[i].empty()) std::memcpy(image + entry.offset, sources[i].data(), entry.bytes);
    entry.checksum = hash64({image + entry.offset, entry.bytes});
    end = entry.offset + entry.bytes;
  }
  std::memset(image + end, 0, total - end);

  Header header;
  header.magic = format::magic;
  header.version = format::version;
  header.sections = static_cast<std::uint32_t>(table.size());
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
