# What every node has, so that the driver can log in, measure, and find the machine as it left it.
{
  config,
  lib,
  pkgs,
  ...
}:
let
  inherit (lib) mkDefault mkOption types;
  inherit (config.nixwulf) cluster fabrics;
  cfg = config.nixwulf.bench-node;
  ports = import ../lib/ports.nix { inherit lib; };
  llamaCpp = import ../lib/llama-cpp.nix { inherit lib pkgs config; };

  # A name must mean one address, and the LAN's is the one that answers when a cable does not.
  plainFabric =
    addresses:
    let
      names = lib.attrNames addresses;
    in
    lib.findFirst (name: fabrics.${name}.kind or null == "ethernet") (lib.head names) names;

  others = lib.filter (node: node.name != cluster.node && node.addresses != { }) cluster.nodes;

  namesOf =
    node:
    lib.mapAttrs (
      fabric: _:
      let
        # Of its own cables a node has an address each.
        label = if node.name == cluster.node then fabric else fabrics.${fabric}.label or fabric;
      in
      lib.optional (fabric == plainFabric node.addresses) node.name ++ [ "${node.name}-${label}" ]
    ) node.addresses;
in
{
  imports = [
    ./fabric-firewall.nix
    ./rdma.nix
  ];

  options.nixwulf.bench-node = {
    enable = mkOption {
      type = types.bool;
      default = cluster.sshKeys != [ ];
      defaultText = lib.literalExpression "config.nixwulf.cluster.sshKeys != [ ]";
      description = ''
        Whether to make this machine a node that the driver can use: ssh for the cluster's keys, the programs that
        the driver starts, nothing that changes or stops the machine during a run.
      '';
    };
    user = mkOption {
      type = types.str;
      default = "bench";
      description = ''
        A user without any privilege who may do everything that a benchmark does, for cluster files whose `ssh` is
        `bench@...`. Nothing that the driver starts needs root; installing a new system does.
      '';
    };
    llamaCpp = mkOption {
      type = types.nullOr types.package;
      default = llamaCpp cluster.backends;
      defaultText = lib.literalMD "this flake's llama.cpp with the backends that the platform's facts list for its GPU";
      description = ''
        The llama.cpp on PATH. It needs the RPC backend, and all nodes need the same build: servers of another version
        are refused or crash (https://github.com/lhl/strix-halo-testing/blob/main/rpc-test/README.md).
      '';
    };
  };

  config = lib.mkIf cfg.enable {
    services.openssh = {
      enable = true;
      # The cluster file's keys are all: what runs as a user cannot add one.
      authorizedKeysInHomedir = mkDefault false;
      settings = {
        PasswordAuthentication = false;
        KbdInteractiveAuthentication = false;
        PermitRootLogin = "prohibit-password";
        # The driver has one connection a node and a session for each process; OpenSSH's limit is 10.
        MaxSessions = 64;
      };
    };

    users = {
      mutableUsers = false;
      users.root.openssh.authorizedKeys.keys = cluster.sshKeys;
      users.${cfg.user} = {
        isNormalUser = true;
        description = "Nixwulf's benchmarks";
        openssh.authorizedKeys.keys = cluster.sshKeys;
        # Without `render` a GPU engine silently computes on the CPU (https://github.com/defilantech/LLMKube/issues/696).
        extraGroups = [
          "rdma"
          "render"
          "systemd-journal"
          "video"
        ];
        # Its manager, which systemd-run asks for scopes, must not come and go with the connections.
        linger = true;
      };
      groups.rdma = { };
    };
    # No one has a password to give, and nothing that the driver starts needs root.
    security.sudo.enable = mkDefault false;

    environment.systemPackages = [
      pkgs.ethtool
      pkgs.iperf3
      pkgs.lm_sensors
      pkgs.pciutils
      # Copies and hashes models (driver/nixwulf/ops/models).
      pkgs.python3
      pkgs.sockperf
    ]
    ++ lib.optional (cfg.llamaCpp != null) cfg.llamaCpp;

    systemd.tmpfiles.settings."10-nixwulf".${cluster.models}.d = {
      inherit (cfg) user;
      group = "users";
      mode = "0755";
    };

    # For what the driver starts.
    nixwulf.fabric-firewall = lib.mapAttrs (_: _: {
      tcp = lib.attrValues ports.tcp ++ lib.attrValues ports.ranges;
      udp = lib.attrValues ports.udp;
    }) fabrics;

    networking = {
      firewall.enable = true;
      hosts = lib.mkMerge (
        # NixOS gives a machine's own name a loopback address, which MPI and Gloo then tell their peers.
        [ { "127.0.0.2" = lib.mkForce [ ]; } ]
        ++ lib.concatMap (
          node:
          let
            names = namesOf node;
          in
          lib.mapAttrsToList (fabric: address: { ${address} = names.${fabric}; }) node.addresses
        ) cluster.nodes
      );
    };

    programs.ssh.knownHosts = lib.listToAttrs (
      map (
        node:
        lib.nameValuePair node.name {
          hostNames = lib.unique (
            [ node.name ] ++ lib.concatLists (lib.attrValues (namesOf node)) ++ lib.attrValues node.addresses
          );
          publicKey = node.hostKey;
        }
      ) (lib.filter (node: node.hostKey != null) cluster.nodes)
    );

    # The logs of all nodes are read side by side. Nodes that reach no server on the Internet follow the one of them with the
    # lowest address (https://chrony-project.org/doc/4.8/chrony.conf.html, local).
    services.chrony = {
      enable = mkDefault true;
      extraConfig = lib.mkIf (others != [ ]) (
        lib.concatLines (
          map (node: "server ${node.addresses.${plainFabric node.addresses}} iburst") others
          ++ lib.concatMap (node: map (address: "allow ${address}") (lib.attrValues node.addresses)) others
          ++ [ "local stratum 10 orphan" ]
        )
      );
    };

    # tuned sets the governor itself, and both would race at boot.
    powerManagement.cpuFreqGovernor = lib.mkIf (!config.services.tuned.enable) (
      mkDefault "performance"
    );
    systemd.targets = lib.genAttrs [ "sleep" "suspend" "hibernate" "hybrid-sleep" ] (_: {
      enable = false;
    });
    system.autoUpgrade.enable = false;
    # What takes the disk waits for its next turn while the driver's processes run: each has such a file.
    systemd.services =
      lib.genAttrs
        (
          lib.optional config.services.fstrim.enable "fstrim"
          ++ lib.optional config.services.logrotate.enable "logrotate"
          ++ lib.optional config.nix.gc.automatic "nix-gc"
        )
        (_: {
          unitConfig.ConditionPathExistsGlob = [
            "!/run/user/*/nixwulf/*.pid"
            "!/run/nixwulf/*.pid"
          ];
        });

    # An out-of-memory kill or a GPU reset during a run is told there only.
    boot.kernel.sysctl."kernel.dmesg_restrict" = 0;

    # Nobody edits declared users or locks a screen here. Each of these takes 2 % of a node's evaluation
    # (one service of PAM is sixty options).
    security.pam.services =
      lib.genAttrs
        [
          "chfn"
          "chpasswd"
          "chsh"
          "groupadd"
          "groupdel"
          "groupmems"
          "groupmod"
          "i3lock"
          "i3lock-color"
          "useradd"
          "userdel"
          "usermod"
          "vlock"
          "xlock"
          "xscreensaver"
        ]
        (_: {
          enable = false;
        });

    # Nothing is evaluated on a node, and nixpkgs' source is most of the files that an installation would copy.
    nixpkgs.flake = {
      setFlakeRegistry = mkDefault false;
      setNixPath = mkDefault false;
    };

    # Options' documentation is a third of the time that it takes to evaluate a node.
    documentation.nixos.enable = mkDefault false;

    system.stateVersion = mkDefault "26.11";
  };
}
