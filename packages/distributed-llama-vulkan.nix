{ distributed-llama }: distributed-llama.override { vulkanSupport = true; }
