# exo as a service. On Linux MLX, its engine, has no GPU backend in nixpkgs: exo computes on the CPU there.
{
  config,
  lib,
  pkgs,
  utils,
  ...
}:
let
  inherit (lib) mkOption types;
  cfg = config.nixwulf.exo;
  fabricService = import ../lib/fabric-service.nix { inherit lib utils config; };
  fabric = fabricService.on cfg.fabric;

  # Commit 09f9ea3, which no tag has yet, put zenoh in the place of libp2p: other options, and nodes that find and reach each
  # other by link-local IPv6 (b5375f8: rust/networking/src/discovery.rs). The driver asks each node's exo which of the two
  # it is; nixpkgs counts what comes after a tag as later.
  zenoh = !lib.versionAtLeast "1.0.71" (lib.getVersion cfg.package);

  peers = lib.filter (address: fabric != null && address != fabric.address) (
    lib.catAttrs cfg.fabric (lib.catAttrs "addresses" config.nixwulf.cluster.nodes)
  );
  linkLocal = import ../lib/link-local.nix { inherit lib; };
in
{
  imports = [ ./fabrics.nix ];

  options.nixwulf.exo = {
    enable = lib.mkEnableOption "exo, which uses the CPU only on Linux: expect none of a GPU's speed";
    package = lib.mkPackageOption pkgs "exo" { };
    fabric = fabricService.option;
    apiPort = mkOption {
      type = types.port;
      default = 52415;
      description = "TCP port of the OpenAI-compatible API, for the cluster's nodes: others reach it by `ssh -L`.";
    };
    peerPort = mkOption {
      type = types.port;
      default = 52414;
      description = "TCP port between the nodes. exo 1.0.71 takes any free one by default, which no firewall rule can name.";
    };
    namespace = mkOption {
      type = types.singleLineStr;
      default = config.nixwulf.cluster.name;
      defaultText = lib.literalExpression "config.nixwulf.cluster.name";
      description = "Nodes of another namespace are no peers, so that two clusters in one room stay two.";
    };
    offline = mkOption {
      type = types.bool;
      default = true;
      description = "Whether exo only uses models that are there, and asks no server on the Internet.";
    };
    modelsFolders = mkOption {
      type = types.listOf types.path;
      default = [ ];
      example = [ "/models" ];
      description = "Folders of models that exo may read and not change.";
    };
  };

  config = lib.mkIf cfg.enable {
    assertions = fabricService.known "nixwulf.exo.fabric" cfg.fabric;

    systemd.services.exo = lib.mkIf (fabric != null) (
      lib.mkMerge [
        (fabricService.unit fabric)
        {
          description = "exo on the fabric '${cfg.fabric}', on the CPU";
          environment = {
            EXO_OFFLINE = lib.boolToString cfg.offline;
            EXO_MODELS_READ_ONLY_DIRS = lib.concatStringsSep ":" cfg.modelsFolders;
            # exo writes its keys and caches below it.
            HOME = "/var/lib/exo";
          }
          // lib.optionalAttrs (!zenoh) {
            EXO_LIBP2P_NAMESPACE = cfg.namespace;
            EXO_BOOTSTRAP_PEERS = lib.concatMapStringsSep "," (
              address: "/ip4/${address}/tcp/${toString cfg.peerPort}"
            ) peers;
          };
          serviceConfig =
            fabricService.hardening
            # The nodes find each other by multicast. Where models are fetched, anybody may answer.
            // lib.optionalAttrs cfg.offline (
              fabricService.onlyPeers cfg.fabric (
                [
                  "localhost"
                  "multicast"
                ]
                ++ lib.optionals zenoh (map linkLocal ([ fabric.address ] ++ peers))
              )
            )
            // {
              ExecStart = utils.escapeSystemdExecArgs (
                [
                  (lib.getExe cfg.package)
                  "--api-port"
                  (toString cfg.apiPort)
                  "--${if zenoh then "zenoh" else "libp2p"}-port"
                  (toString cfg.peerPort)
                ]
                ++ lib.optionals zenoh [
                  "--discovery-port"
                  (toString fabricService.udp.exo)
                  "--namespace"
                  cfg.namespace
                ]
              );
              StateDirectory = "exo";
              # Of /home it sees the models, if they are there.
              ProtectHome = "tmpfs";
              BindReadOnlyPaths = map fabricService.quotedPath cfg.modelsFolders;
              WorkingDirectory = "/var/lib/exo";
              # It binds 0.0.0.0 and looks for peers on every interface (1.0.71: src/exo/api/main.py,
              # rust/networking/src/swarm.rs), and has no option for less.
              RestrictNetworkInterfaces = [
                "lo"
                fabric.interface
              ];
            };
        }
      ]
    );

    services.udev.extraRules = lib.mkIf (fabric != null) (fabricService.startedBy fabric "exo.service");

    nixwulf.fabric-firewall.${cfg.fabric} = {
      tcp = [
        cfg.apiPort
        cfg.peerPort
        fabricService.ranges.exo
      ];
      # By which the nodes find each other.
      udp = [ (if zenoh then fabricService.udp.exo else fabricService.udp.exo-mdns) ];
      ipv6 = zenoh;
    };
  };
}
