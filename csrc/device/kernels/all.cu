// One image holds all kernels.
#include "device/kernels/move.cu"
#include "device/kernels/pace.cu"
#include "device/kernels/scale.cu"
