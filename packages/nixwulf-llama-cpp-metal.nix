{ nixwulf-llama-cpp-cpu }:
nixwulf-llama-cpp-cpu.override {
  backend = "metal";
  supportedSystems = [ "aarch64-darwin" ];
}
