# This flake's llama.cpp for a node, by backends: a package's name lists them, preferred first.
{
  lib,
  pkgs,
  config,
}:
backends:
let
  names = if backends == [ ] then [ "cpu" ] else backends;
  package = pkgs."nixwulf-llama-cpp-${lib.concatStringsSep "-" names}";
in
# RPC over RDMA finds the providers of the rdma-core that it is linked with, and no others.
if pkgs.stdenv.hostPlatform.isLinux then
  package.override { rdma-core = config.nixwulf.rdma.package; }
else
  package
