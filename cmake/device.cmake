# The kernels of csrc/device/kernels as one image in the core: prism_device_image is its source.
set(prism_device_image ${PROJECT_SOURCE_DIR}/csrc/device/none/image.cc)
