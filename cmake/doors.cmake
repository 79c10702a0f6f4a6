# Shared objects that stand in for vendor libraries. Each links libprismcore.so and nothing of
# the vendor's. Filled by csrc/vgpu and csrc/intercept.
add_custom_target(prism_doors)
