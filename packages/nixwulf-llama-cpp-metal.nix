{ nixwulf-llama-cpp-cpu }:
nixwulf-llama-cpp-cpu.override {
  backends = [ "metal" ];
  supportedSystems = [ "aarch64-darwin" ];
}
