# ib_write_bw, ib_read_lat and the rest: what a fabric does without NCCL, MPI or a GPU in between. nixpkgs lacks it.
{
  lib,
  stdenv,
  fetchFromGitHub,
  autoreconfHook,
  pciutils,
  rdma-core,
}:
stdenv.mkDerivation (finalAttrs: {
  pname = "perftest";
  version = "26.04.17";

  src = fetchFromGitHub {
    owner = "linux-rdma";
    repo = "perftest";
    tag = finalAttrs.version;
    hash = "sha256-oNvzQubmslZ4JUNww/wvWd54JDsDLamCDlorHWlNtaY=";
  };

  nativeBuildInputs = [ autoreconfHook ];

  # The providers that a program finds are those of the rdma-core that it is linked to: override this one for USB4.
  buildInputs = [
    pciutils
    rdma-core
  ];

  enableParallelBuilding = true;

  meta = {
    description = "Bandwidth and latency of RDMA devices";
    homepage = "https://github.com/linux-rdma/perftest";
    # Or, as the user likes, OpenIB.org's BSD licence.
    license = lib.licenses.gpl2Only;
    platforms = lib.platforms.linux;
    mainProgram = "ib_write_bw";
  };
})
