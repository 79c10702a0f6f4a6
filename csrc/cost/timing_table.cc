#include "cost/timing_table.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>

#include "cost/kernel_name.h"

namespace prism {
namespace {

// As c++filt spells a mangled name; empty where it is none.
std::string spelled(std::string_view name) {
  if (!name.starts_with("_Z") || name.size() > KernelName::max_length) return {};
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(std::string(name).c_str(), nullptr, nullptr, &status), &std::free);
  return status == 0 && text ? std::string(text.get()) : std::string();
}

template <class Matches>
const TimingRow* first(const DeviceProfile& profile, const Matches& matches) {
  const auto row = std::find_if(profile.table.begin(), profile.table.end(), matches);
  return row == profile.table.end() ? nullptr : &*row;
}

}  // namespace

const TimingRow* find_row(std::string_view name, const KernelShape& shape,
                          const DeviceProfile& profile) {
  if (profile.table.empty()) return nullptr;
  const TimingRow* row = first(profile, [&](const TimingRow& candidate) {
    return candidate.shape == shape && candidate.name == name;
  });
  if (row != nullptr) return row;
  if (shape.gemm.m > 0) {
    const bool tf32 = name.find("tf32") != std::string_view::npos;
    const std::string_view wanted = tf32 ? "product:tf32" : "product";
    return first(profile, [&](const TimingRow& candidate) {
      return candidate.shape.gemm == shape.gemm && candidate.shape.dtype == shape.dtype &&
             candidate.name == wanted;
    });
  }
  const std::string text = spelled(name);
  return first(profile, [&](const TimingRow& candidate) {
    return candidate.shape.gemm == Gemm{} && candidate.shape.grid == shape.grid &&
           candidate.shape.block == shape.block &&
           (candidate.name == name || (!text.empty() && candidate.name == text));
  });
}

}  // namespace prism
