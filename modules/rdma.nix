# What RDMA needs on every node, whatever carries it: drivers, memory that may be pinned, rights, the firewall.
{
  config,
  lib,
  pkgs,
  utils,
  ...
}:
let
  inherit (lib) mkDefault mkOption types;
  cfg = config.nixwulf.rdma;
  inherit (config.nixwulf) cluster fabrics;
  inherit (import ../lib/fabric-service.nix { inherit lib utils config; }) hardening;

  # The driver reads the same file.
  kinds = fromTOML (builtins.readFile ../driver/nixwulf/data/fabric_kinds.toml);
  ofKinds = kinds: lib.filterAttrs (_: fabric: lib.elem fabric.kind kinds) fabrics;
  rdma = lib.filterAttrs (_: fabric: kinds.${fabric.kind}.rdma or false) fabrics;
  infiniband = lib.attrNames (ofKinds [ "infiniband" ]);
  roce = ofKinds [ "roce" ] != { };

  # The names of the nodes that are on an InfiniBand fabric, the head first.
  peers = map (node: node.name) (
    lib.filter (node: lib.any (name: node.addresses ? ${name}) infiniband) cluster.nodes
  );

  typicalGid = {
    roce = "often 1 on Intel and 3 on NVIDIA, see /sys/class/infiniband/*/ports/1/gid_attrs/types";
    infiniband = "0 on InfiniBand";
    usb4-rdma = "1 on USB4";
  };

  # NixOS' limit is 8 MB. With RDMA one node's low limit shows as a network fault on the other; without, llama.cpp warns that
  # it could not lock the model and goes on. PAM's wildcard does not mean root, and PAM does not concern units.
  memlock = {
    security.pam.loginLimits =
      lib.concatMap
        (
          domain:
          map
            (type: {
              inherit domain type;
              item = "memlock";
              value = "unlimited";
            })
            [
              "soft"
              "hard"
            ]
        )
        [
          "*"
          "root"
        ];
    systemd.settings.Manager.DefaultLimitMEMLOCK = "infinity";
    systemd.user.settings.Manager.DefaultLimitMEMLOCK = "infinity";
  };
in
{
  imports = [ ./fabric-firewall.nix ];

  options.nixwulf.rdma = {
    enable = mkOption {
      type = types.bool;
      default = rdma != { };
      defaultText = lib.literalMD "whether the node is on a `roce`, `infiniband` or `usb4-rdma` fabric";
      description = ''
        Whether to set the node up for RDMA: ConnectX (mlx5) and Intel E810 (ice and irdma, as RoCEv2; NVM 4.91 or
        newer), or what other modules bring. One fabric must be of one vendor: mixed stacks did not interoperate or ran
        slower than one node. Nix cannot see the cards; the driver compares the nodes' before a run.
      '';
    };
    package = mkOption {
      type = types.package;
      default = pkgs.rdma-core;
      defaultText = lib.literalExpression "pkgs.rdma-core";
      description = ''
        The rdma-core whose libibverbs and providers the node uses. Programs find a provider only in the libibverbs
        that they are linked with, so whatever shall use RDMA here must be built with this one.
      '';
    };
    subnetManager = mkOption {
      type = types.either (types.enum [ false ]) types.str;
      default = if peers != [ ] then lib.head peers else cluster.node;
      defaultText = lib.literalMD "the first node of the cluster that is on an `infiniband` fabric";
      description = ''
        The node that runs opensm, without which no InfiniBand port becomes active; exactly one does. false where the
        switch has a subnet manager.
      '';
    };
    trusted = mkOption {
      type = types.bool;
      default = false;
      description = ''
        Whether the cluster's nodes reach all ports of each other on the RDMA fabrics, for what listens on a port of its
        own choice. Without it RoCE (UDP 4791) and perftest (TCP 18515) pass, and what other modules open.
      '';
    };
  };

  config = lib.mkMerge [
    (lib.mkIf (cfg.enable || config.nixwulf.bench-node.enable or false) memlock)
    (lib.mkIf cfg.enable {
      boot.kernelModules = [
        "ib_umad"
        "ib_uverbs"
        "rdma_ucm"
      ]
      ++ lib.optionals roce [
        "irdma"
        "mlx5_ib"
      ]
      ++ lib.optionals (infiniband != [ ]) [
        "ib_ipoib"
        "mlx4_ib"
        "mlx5_ib"
      ];
      # Without its DDP package from linux-firmware an E810 runs in safe mode and has no RDMA.
      hardware.enableRedistributableFirmware = mkDefault true;

      users.groups.rdma = { };
      # Verbs devices are everybody's as the kernel makes them; those that manage a fabric are root's. Not rdma-core's own
      # rules: they rename devices by PCI path, while cluster files name the kernel's (mlx5_0, irdma0), and USB4's provider
      # is found by the device's name only.
      services.udev.extraRules = ''
        SUBSYSTEM=="infiniband_mad", GROUP="rdma", MODE="0660"
      '';

      environment.systemPackages = [
        cfg.package
        (pkgs.perftest.override { rdma-core = cfg.package; })
      ];

      # What an RDMA device answers by itself, no firewall of the kernel's sees; a soft device's packets pass it.
      nixwulf.fabric-firewall =
        let
          all = {
            from = 1;
            to = 65535;
          };
        in
        lib.mapAttrs (_: _: {
          udp = [ (if cfg.trusted then all else 4791) ];
          tcp = [ (if cfg.trusted then all else 18515) ];
        }) rdma;

      systemd.services.opensm = lib.mkIf (infiniband != [ ] && cfg.subnetManager == cluster.node) {
        description = "InfiniBand subnet manager";
        wantedBy = [ "multi-user.target" ];
        after = [ "systemd-modules-load.service" ];
        environment.OSM_CACHE_DIR = "%C/opensm";
        # The port may come after the unit, and goes with its cable. Not by Restart: a unit that waits for its own restart
        # counts as failed in whatever switch comes next, so that a node without a cable could never be updated.
        script = ''
          while true; do
            devices=(/dev/infiniband/umad*)
            if [ -e "''${devices[0]}" ]; then
              ${lib.getExe' pkgs.opensm "opensm"} --log_file stdout || true
            fi
            sleep 5
          done
        '';
        # As root, whose devices they are.
        serviceConfig = hardening // {
          DynamicUser = false;
          PrivateUsers = false;
          ProcSubset = "pid";
          DeviceAllow = [ "char-infiniband*" ];
          CacheDirectory = "opensm";
        };
      };

      assertions =
        lib.concatLists (
          lib.mapAttrsToList (name: fabric: [
            {
              assertion = fabric.rdmaDevice != null;
              message = "${cluster.where}: the fabric '${name}' has no RDMA device; add rdma_device = \"...\" by its exact name ('rdma link' lists them).";
            }
            {
              assertion = fabric.gidIndex != null;
              message = "${cluster.where}: the fabric '${name}' has no GID index; add gid_index = ... (${typicalGid.${fabric.kind}}).";
            }
          ]) rdma
        )
        ++ lib.optional (infiniband != [ ] && cfg.subnetManager != false && peers != [ ]) {
          assertion = lib.elem cfg.subnetManager peers;
          message = "${cluster.where}: nixwulf.rdma.subnetManager is '${cfg.subnetManager}', which is not a node on an InfiniBand fabric; name one of ${lib.concatStringsSep ", " peers}.";
        };
    })
  ];
}
