# What a node knows of its cluster. Filled from the cluster file; other modules read it.
{
  config,
  lib,
  ...
}:
let
  inherit (lib) mkOption types;
  cfg = config.nixwulf.cluster;
  # By which the cluster file is checked.
  inherit (lib.importJSON ../driver/nixwulf/data/schemas/cluster.json) properties;
  kinds = properties.fabrics.additionalProperties.properties.kind.enum;
in
{
  options.nixwulf.cluster = {
    name = mkOption {
      type = types.str;
      default = "cluster";
      description = "Name of the cluster that this node belongs to.";
    };
    source = mkOption {
      type = types.str;
      default = "this configuration";
      description = "The file that describes the cluster; error messages name it.";
    };
    node = mkOption {
      type = types.str;
      default = config.networking.hostName;
      defaultText = lib.literalExpression "config.networking.hostName";
      description = "Name of this node in the cluster file.";
    };
    where = mkOption {
      type = types.str;
      internal = true;
      readOnly = true;
      default = "${cfg.source}: node '${cfg.node}'";
      description = "How an error message begins.";
    };
    sshKeys = mkOption {
      type = types.listOf types.singleLineStr;
      default = [ ];
      description = "Public ssh keys that may log in and deploy.";
    };
    models = mkOption {
      type = types.path;
      internal = true;
      default = "/models";
      description = "The folder in which `nixwulf models` keeps models.";
    };
    sshUser = mkOption {
      type = types.nullOr types.str;
      default = null;
      description = "Who the driver logs in as on this node, where the cluster file says so.";
    };
    backends = mkOption {
      type = types.listOf types.str;
      internal = true;
      default = [ ];
      description = "llama.cpp's backends for this node's GPU, preferred first; the facts of its platform list them.";
    };
    nodes = mkOption {
      default = [ ];
      description = "All nodes of the cluster, the head first.";
      type = types.listOf (
        types.submodule {
          options = {
            name = mkOption {
              type = types.str;
              description = "The node's name, which is its host name.";
            };
            hostKey = mkOption {
              type = types.nullOr types.singleLineStr;
              default = null;
              description = "The node's public ssh host key, where the cluster file pins it.";
            };
            addresses = mkOption {
              type = types.attrsOf types.str;
              default = { };
              description = "The node's address on each of this node's `nixwulf.fabrics`.";
            };
            memoryGiB = mkOption {
              type = types.nullOr types.number;
              default = null;
              description = "The node's memory, where its platform says.";
            };
          };
        }
      );
    };
  };

  options.nixwulf.fabrics = mkOption {
    default = { };
    description = ''
      This node's place on each fabric. A fabric of cables has an entry for each cable, `FABRIC-NODE` with the node at the
      other end, and where a cable is several ports `FABRIC-NODE-2` and so on.
    '';
    type = types.attrsOf (
      types.submodule (
        { config, name, ... }: {
          options = {
            label = mkOption {
              type = types.str;
              internal = true;
              default = name;
              description = "What comes after a node's name in `/etc/hosts`.";
            };
            cable = mkOption {
              type = types.nullOr types.str;
              default = null;
              description = "The node at the other end of the cable; null on a network.";
            };
            kind = mkOption {
              type = types.enum kinds;
              description = "What the fabric is made of.";
            };
            interface = mkOption {
              type = types.str;
              description = "Network interface.";
            };
            address = mkOption {
              type = types.str;
              description = "IPv4 address.";
            };
            prefixLength = mkOption {
              type = types.ints.between 1 32;
              description = "Length of the subnet's prefix.";
            };
            mtu = mkOption {
              type = types.ints.between 576 65520;
              description = "MTU in bytes.";
            };
            speedGbps = mkOption {
              type = types.number;
              description = "Nominal speed, Gbit/s.";
            };
            gateway = mkOption {
              type = types.nullOr types.str;
              default = null;
              description = "The router that the default route goes to; with it no DHCP server is asked for one.";
            };
            dns = mkOption {
              type = types.listOf types.str;
              default = [ ];
              description = "Name servers.";
            };
            rdmaDevice = mkOption {
              type = types.nullOr types.str;
              default = null;
              description = "RDMA device of the address, by its exact name.";
            };
            rdmaDevices = mkOption {
              type = types.listOf types.str;
              default = lib.optional (config.rdmaDevice != null) config.rdmaDevice;
              defaultText = lib.literalMD "`rdmaDevice` alone";
              description = "All RDMA devices of the interface, or of the cable's ports, which NCCL takes.";
            };
            gidIndex = mkOption {
              type = types.nullOr types.ints.unsigned;
              default = null;
              description = "Index of the GID that RDMA uses.";
            };
          };
        }
      )
    );
  };
}
