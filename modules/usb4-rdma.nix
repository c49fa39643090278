# RDMA over USB4 and Thunderbolt cables, by thunderbolt-ibverbs. Kernel module, libibverbs provider and their options
# come from one input, so that all nodes have one build of them: unlike builds of the two ends panic on connecting.
{ inputs }:
{
  config,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib) mkOption types;
  cfg = config.nixwulf.usb4-rdma;
  inherit (config.nixwulf) cluster fabrics;
  inherit (config.nixwulf.known-bad) kernelVersion;

  source = inputs.thunderbolt-ibverbs;
  kernelFloor = "6.14";

  ofKind = kind: lib.filterAttrs (_: fabric: fabric.kind == kind) fabrics;
  links = ofKind "usb4-rdma";
  names = lib.attrNames links;

  patches = "${source}/packaging/rdma-core-patches";
  rdmaCore = pkgs.rdma-core.overrideAttrs (old: {
    pname = "rdma-core-usb4";
    patches =
      old.patches or [ ]
      ++ map (name: "${patches}/${name}") (
        lib.filter (lib.hasSuffix ".patch") (lib.attrNames (builtins.readDir patches))
      );
  });
in
{
  imports = [
    ./known-bad.nix
    ./rdma.nix
    (import "${source}/module.nix" { })
  ];

  options.nixwulf.usb4-rdma = {
    enable = mkOption {
      type = types.bool;
      default = links != { };
      defaultText = lib.literalMD "whether the node is on a `usb4-rdma` fabric";
      description = ''
        Whether to load thunderbolt-ibverbs, which its authors call a buggy and insecure research driver. Measured with
        two cables and the IOMMU off: 7.41 us for a 64-byte write, 46 Gbit/s both ways together
        (https://github.com/hellas-ai/thunderbolt-ibverbs/blob/main/bench/results/strix-2p-noiommu-2x40g/perftest.md),
        where TCP over the cable is at 240 us and 9.4 Gbit/s.

        The kernel is nixpkgs', 6.14 or newer, and its `thunderbolt` drivers are therefore the same on all nodes. The
        project's own patched kernel (`hardware.thunderbolt-ibverbs.kernel.useProjectKernel`) needs the Thunderbolt
        maintainer's tree from git.kernel.org, which this flake does not take as an input; to use it, import that
        project's flake and set `boot.kernelPackages` from its packages on every node.

        Reboot the nodes of a pair together: never reload the module on one of them. `failed to allocate Rx HopID` is
        cured by rebooting both.
      '';
    };
    interface = mkOption {
      type = types.str;
      default = links.${lib.head names}.interface;
      defaultText = lib.literalMD "the interface of the node's `usb4-rdma` fabric";
      description = ''
        The network interface whose IPv4 address becomes RDMA's GID (index 1). It has to be the one that engines bind
        to: they look for the GID of their TCP address, and silently stay on TCP where there is none. A GID of zeros
        says that the interface has no address yet.
      '';
    };
    thunderboltNet = mkOption {
      type = types.bool;
      default = true;
      description = ''
        Whether IP goes over the same cable by thunderbolt-net, so that the interface can be `thunderbolt0`. Sources
        disagree whether both can own the cable: the project's own benchmarks swap the two drivers, others run both
        (https://github.com/kyuz0/amd-strix-halo-vllm-toolboxes/blob/main/docs/USB4_RDMA_PLAN.md). Where it is false,
        thunderbolt-net is kept out and the interface has to be another one, such as the LAN's.
      '';
    };
    parameters = mkOption {
      type = types.attrsOf (
        types.oneOf [
          types.bool
          types.int
          types.str
        ]
      );
      default = { };
      example.lanes = "2";
      description = "More parameters of the kernel module thunderbolt_ibverbs, for example two rails a cable.";
    };
    secureBoot = mkOption {
      type = types.bool;
      default = config.boot.loader.limine.secureBoot.enable || config.boot.lanzaboote.enable or false;
      defaultText = lib.literalMD "whether Limine or Lanzaboote is set up for it";
      description = ''
        Whether the node boots with Secure Boot, under which the unsigned kernel module is refused. Nix sees only how
        the boot loader is set up; say so here where the firmware is set to it.
      '';
    };
  };

  config = lib.mkIf cfg.enable {
    hardware.thunderbolt-ibverbs = {
      enable = true;
      userspaceTools.package = rdmaCore;
      blacklist.enable = !cfg.thunderboltNet;
      # In modprobe.d, because udev loads the module as soon as it sees a peer, and its defaults register nothing.
      config = {
        profile = "linux_perf";
        tbnet = if cfg.thunderboltNet then "allow" else "prefer_rdma";
        bind_services = true;
        allocate_rings = true;
        start_rings = true;
        negotiate_native = true;
        enable_tunnels = true;
        register_verbs = true;
        roce_netdev = cfg.interface;
      }
      // cfg.parameters;
    };
    boot.kernelModules = [ "thunderbolt" ] ++ lib.optional cfg.thunderboltNet "thunderbolt-net";
    nixwulf.rdma.package = rdmaCore;

    assertions = [
      {
        assertion = !cfg.secureBoot;
        message = "${cluster.where}: usb4-rdma's kernel module is not signed and cannot load with Secure Boot; turn Secure Boot off in the firmware and remove it from the configuration.";
      }
      {
        assertion = lib.versionAtLeast kernelVersion kernelFloor;
        message = "${cluster.where}: kernel ${kernelVersion} is too old for usb4-rdma, which needs ${kernelFloor}; set boot.kernelPackages = pkgs.linuxPackages_latest.";
      }
      {
        assertion = lib.length names <= 1;
        message = "${cluster.where}: the fabrics ${
          lib.concatMapStringsSep " and " (name: "'${name}'") names
        } are both usb4-rdma, but the driver takes GIDs from one interface only; leave the node on one of them.";
      }
    ]
    ++ lib.concatLists (
      lib.mapAttrsToList (name: fabric: [
        {
          assertion = fabric.rdmaDevice == null || lib.match "usb4_rdma[0-9]+" fabric.rdmaDevice != null;
          message = "${cluster.where}: the fabric '${name}' has the RDMA device '${toString fabric.rdmaDevice}', but its provider knows devices by the name usb4_rdma and a number only; set rdma_device = \"usb4_rdma0\".";
        }
      ]) links
    )
    ++ lib.concatMap (
      name:
      lib.mapAttrsToList (other: cable: {
        assertion = cable.interface != links.${name}.interface;
        message = "${cluster.where}: the fabrics '${name}' (usb4-rdma) and '${other}' (thunderbolt-net) are on the same link '${cable.interface}'; remove '${other}', because usb4-rdma carries IP as well.";
      }) (ofKind "thunderbolt-net")
    ) names;
  };
}
