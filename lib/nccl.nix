# Environment by which NCCL (and RCCL) and Gloo cross one fabric by one transport; the driver reads the same file.
{ lib }:
{ fabric, transport }:
let
  parts = fromTOML (builtins.readFile ../driver/nixwulf/data/nccl.toml);
  fill = builtins.replaceStrings [ "{interface}" "{rdma_device}" "{gid_index}" "{link_prefix}" ] (
    map toString [
      fabric.interface
      (lib.concatStringsSep "," (lib.sort lib.lessThan fabric.rdmaDevices))
      fabric.gidIndex
      fabric.prefixLength
    ]
  );
  overRdma =
    parts.rdma
    // lib.optionalAttrs (fabric.gidIndex != null) parts.gid
    // parts.${fabric.kind} or { }
    // lib.optionalAttrs (lib.length fabric.rdmaDevices > 1) parts.several
    // lib.optionalAttrs (fabric.cable != null) parts.cables;
in
lib.mapAttrs (_: fill) (parts.always // (if transport == "rdma" then overRdma else parts.tcp))
