# Who this node talks to on a fabric: the addresses of the cluster's other nodes there. Of a machine without a cluster
# nobody says who they are, and the fabric's subnet stands for them.
{ lib, config }:
name:
let
  inherit (config.nixwulf) cluster fabrics;
  fabric = fabrics.${name};
in
if cluster.nodes == [ ] then
  [ "${fabric.address}/${toString fabric.prefixLength}" ]
else
  lib.remove fabric.address (lib.catAttrs name (lib.catAttrs "addresses" cluster.nodes))
