# Environment by which NCCL (and RCCL) and Gloo cross one fabric by one transport. All processes of a run need the
# same: a variable that only some have is a silent fallback to tcp.
{ lib }:
{ fabric, transport }:
{
  # NCCL takes a bare name as a prefix, Gloo as the name.
  NCCL_SOCKET_IFNAME = "=${fabric.interface}";
  GLOO_SOCKET_IFNAME = fabric.interface;
  # Neither gfx1151 nor GB10 has GPUDirect.
  NCCL_NET_GDR_LEVEL = "0";
  # A run has to prove its transport: "via NET/IB" or "via NET/Socket".
  NCCL_DEBUG = "INFO";
  NCCL_DEBUG_SUBSYS = "INIT,NET";
}
// lib.optionalAttrs (transport == "tcp") { NCCL_IB_DISABLE = "1"; }
// lib.optionalAttrs (transport == "rdma") (
  {
    NCCL_IB_DISABLE = "0";
    # Exactly that one: a prefix matches two devices after a link reset, and ncclCommInitRank fails
    # (https://github.com/kyuz0/amd-strix-halo-vllm-toolboxes/blob/main/docs/USB4_RDMA_PLAN.md).
    NCCL_IB_HCA = "=${toString fabric.rdmaDevice}";
    NCCL_IB_TIMEOUT = "23";
    NCCL_IB_RETRY_CNT = "7";
  }
  // lib.optionalAttrs (fabric.gidIndex != null) {
    NCCL_IB_GID_INDEX = toString fabric.gidIndex;
  }
  # What setup_guide_infiniband.md of the same repository found to work on native InfiniBand.
  // lib.optionalAttrs (fabric.kind == "infiniband") {
    NCCL_PROTO = "LL";
    NCCL_ALGO = "Ring";
  }
)
