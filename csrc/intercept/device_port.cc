#include "intercept/device_port.h"

#include <dlfcn.h>

#include <atomic>

#include "vgpu/device/session.h"

namespace prism::intercept {

namespace {

// The CUDA runtime of the process, which is the virtual GPU's: NCCL hands out memory that the
// framework later passes to other CUDA calls, so it must come from there.
template <class Function>
Function* runtime(const char* name) noexcept {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

class VirtualDevice final : public DevicePort {
 public:
  std::uint32_t rank() const override { return session().options().rank; }
  std::uint32_t world_size() const override { return session().options().world_size; }

  std::int32_t compute_capability() const override {
    const DeviceProfile& device = session().options().device;
    return 10 * device.compute_major + device.compute_minor;
  }

  std::int32_t current_device() const override {
    int device = 0;
    const auto get = runtime<int(int*)>("cudaGetDevice");
    return get != nullptr && get(&device) == 0 ? device : 0;
  }

  bool is_device(const void* address) const override { return session().is_device(address); }

  bool is_live(const void* address, std::int64_t bytes) const override {
    return session().is_live(address, bytes);
  }

  void* allocate(std::int64_t bytes) override {
    void* address = nullptr;
    const auto allocate = runtime<int(void**, std::size_t)>("cudaMalloc");
    if (allocate == nullptr || allocate(&address, static_cast<std::size_t>(bytes)) != 0) {
      return nullptr;
    }
    return address;
  }

  bool release(void* address) override {
    const auto release = runtime<int(void*)>("cudaFree");
    return release != nullptr && release(address) == 0;
  }

  std::uint32_t add_communicator(std::string_view name, std::uint32_t size, std::uint32_t position,
                                 std::string_view unique_id) override {
    vgpu::OpenCommunicator open;
    open.name = name;
    open.size = size;
    open.position = position;
    open.unique_id = unique_id;
    return session().add_communicator(std::move(open));
  }

  void end_communicator() override { session().end_watch(); }

  void set_members(std::uint32_t slot, std::span<const std::uint32_t> members) override {
    session().set_members(slot, members);
  }

  void communicate(void* stream, std::span<Op> parts) override {
    session().communicate(stream, parts);
  }

  void enqueue(void* stream, std::function<void()> move,
               std::span<const Touched> touches) override {
    session().enqueue(stream, std::move(move), ranges_of(touches));
  }

  void enqueue_step(void* stream, std::function<vgpu::Lacks()> step,
                    std::span<const Touched> touches) override {
    session().enqueue_step(stream, std::move(step), ranges_of(touches));
  }

  void follow_all(void* stream) override { session().follow_all(stream); }

  std::shared_ptr<const vgpu::Company> company(std::uint32_t slot) const override {
    return session().company(slot);
  }

  std::vector<Touched> written(const void* address, std::int64_t bytes) const override {
    std::vector<Touched> parts;
    for (const vgpu::Range& part : session().written(address, bytes)) {
      parts.push_back(
          {reinterpret_cast<const void*>(part.begin), static_cast<std::int64_t>(part.size())});
    }
    return parts;
  }

  void clear(void* address, std::int64_t bytes) override { session().clear(address, bytes); }

  void note_written(const void* address, std::int64_t bytes) override {
    session().note_written(address, bytes);
  }

  std::int64_t real_bytes_limit() const override { return vgpu::Session::real_bytes_limit; }

 private:
  static std::vector<vgpu::Range> ranges_of(std::span<const Touched> touches) {
    std::vector<vgpu::Range> ranges;
    ranges.reserve(touches.size());
    for (const Touched& touched : touches) {
      ranges.push_back(vgpu::range_of(touched.address, touched.bytes));
    }
    return ranges;
  }
  static vgpu::Session& session() { return vgpu::Session::get(); }
};

}  // namespace

namespace {
std::atomic<DevicePort*> in_use{nullptr};
}  // namespace

DevicePort& device_port() {
  static VirtualDevice device;
  DevicePort* const used = in_use.load(std::memory_order_acquire);
  return used == nullptr ? device : *used;
}

void use_device_port(DevicePort* port) noexcept { in_use.store(port, std::memory_order_release); }

}  // namespace prism::intercept
