{ nixwulf-llama-cpp-cpu }: nixwulf-llama-cpp-cpu.override { backend = "vulkan"; }
