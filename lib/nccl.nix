# Environment by which NCCL (and RCCL) and Gloo cross one fabric by one transport; the driver reads the same file.
{ lib }:
{ fabric, transport }:
let
  parts = fromTOML (builtins.readFile ../driver/nixwulf/data/nccl.toml);
  fill =
    builtins.replaceStrings
      [ "{interface}" "{rdma_device}" "{gid_index}" ]
      (map toString [
        fabric.interface
        fabric.rdmaDevice
        fabric.gidIndex
      ]);
  overRdma =
    parts.rdma
    // lib.optionalAttrs (fabric.gidIndex != null) parts.gid
    // parts.${fabric.kind} or { };
in
lib.mapAttrs (_: fill) (parts.always // (if transport == "rdma" then overRdma else parts.tcp))
