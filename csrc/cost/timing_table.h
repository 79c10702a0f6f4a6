// Which row of a device profile's timing table a launch has.
#pragma once

#include <string_view>

#include "cost/device_profile.h"
#include "graph/kernel.h"

namespace prism {

// The first of:
//   1. the row of this name and shape;
//   2. of a product: the row `product` (`product:tf32` where the name says so) of its dimensions
//   and
//      type, whichever call and transposes;
//   3. of another kernel: the row without counts of its grid and block, named as the kernel or as
//      c++filt and Kineto spell it. Shared memory does not count: traces tell another figure.
// 2 and 3 are what traces tell of a kernel. nullptr: none. A later row of one key is never found.
const TimingRow* find_row(std::string_view name, const KernelShape& shape,
                          const DeviceProfile& profile);

}  // namespace prism
