// The device that the stand-ins describe: one answer for the runtime and the driver.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace prism::standins {

constexpr int max_threads_per_block = 1024;
constexpr int max_threads_per_sm = 2048;
constexpr int registers_per_sm = 65536;
constexpr int registers_per_thread = 64;  // what a kernel is taken to use
constexpr int default_shared_per_block = 48 << 10;
constexpr int reserved_shared_per_block = 1 << 10;
constexpr int least_priority = 0, greatest_priority = -5;

int device_count() noexcept;
bool is_device_index(int device) noexcept;
int max_blocks_per_sm() noexcept;
// By CUDA's attribute number (the runtime's and the driver's are the same); nothing: no such
// attribute. Features the virtual GPU lacks answer 0.
std::optional<int> device_attribute(int attribute, int device) noexcept;
// The same on every rank of a node's device.
void device_uuid(int device, unsigned char (&uuid)[16]) noexcept;
void pci_bus_id(int device, char* text, int length) noexcept;
// Blocks of a kernel that fit onto one SM by threads, registers and shared memory.
int active_blocks(int block_threads, std::size_t shared_bytes) noexcept;

}  // namespace prism::standins
