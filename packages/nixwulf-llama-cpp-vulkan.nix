{ rdma-core, nixwulf-llama-cpp-cpu }:
nixwulf-llama-cpp-cpu.override {
  inherit rdma-core;
  backends = [ "vulkan" ];
}
