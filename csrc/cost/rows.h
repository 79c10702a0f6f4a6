// Models of kernels that work row by row (rows.cc).
#pragma once

#include "cost/launch.h"

namespace prism {

KernelWork norm_forward_work(const Launch& launch);
KernelWork norm_moments_work(const Launch& launch);
KernelWork norm_backward_work(const Launch& launch);
KernelWork norm_weight_work(const Launch& launch);
KernelWork softmax_row_work(const Launch& launch);
KernelWork softmax_warp_work(const Launch& launch);

}  // namespace prism
