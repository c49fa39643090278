{ evaluate, lib, ... }:
let
  fabric = kind: number: {
    inherit kind;
    interface = "eth${toString number}";
    address = "10.${toString number}.0.1";
    prefixLength = 24;
    mtu = 9000;
    speedGbps = 100;
    rdmaDevice = "dev${toString number}";
    gidIndex = 1;
  };
  head = evaluate [
    {
      services.openssh.enable = true;
      nixwulf.cluster.node = "head";
      nixwulf.cluster.nodes = [
        {
          name = "head";
          addresses.ib = "10.3.0.1";
        }
        {
          name = "worker";
          addresses.ib = "10.3.0.2";
        }
      ];
      nixwulf.fabrics = {
        office = removeAttrs (fabric "ethernet" 1) [
          "rdmaDevice"
          "gidIndex"
        ];
        switch = fabric "roce" 2;
        ib = fabric "infiniband" 3;
      };
    }
  ];
  worker = evaluate [
    {
      nixwulf.rdma.trusted = true;
      nixwulf.rdma.subnetManager = "head";
      nixwulf.fabrics.ib = fabric "infiniband" 3;
    }
  ];
  managedSwitch = evaluate [
    {
      nixwulf.rdma.subnetManager = false;
      nixwulf.fabrics.ib = fabric "infiniband" 3;
    }
  ];
  plain = evaluate [ { nixwulf.fabrics.office = fabric "ethernet" 1; } ];

  inherit (head.systemd.services) opensm;
  lines = text: lib.splitString "\n" text;
  opened = head.nixwulf.fabric-firewall;
in
{
  "drivers of Intel's and NVIDIA's cards are loaded, and IP over InfiniBand" = {
    expected = [ ];
    actual = lib.subtractLists head.boot.kernelModules [
      "ib_uverbs"
      "rdma_ucm"
      "ib_umad"
      "irdma"
      "mlx5_ib"
      "ib_ipoib"
    ];
  };
  "logins may pin all memory, root's too, soft and hard" = {
    expected = [
      "* hard"
      "* soft"
      "root hard"
      "root soft"
    ];
    actual = lib.sort lib.lessThan (
      map (limit: "${limit.domain} ${limit.type}") (
        lib.filter (
          limit: limit.item == "memlock" && limit.value == "unlimited"
        ) head.security.pam.loginLimits
      )
    );
  };
  "ssh applies the limits" = {
    expected = true;
    actual = lib.hasInfix "pam_limits.so" head.security.pam.services.sshd.text;
  };
  "units of the system and of users may pin all memory" = {
    expected = [
      true
      true
    ];
    actual =
      map (file: lib.elem "DefaultLimitMEMLOCK=infinity" (lines head.environment.etc.${file}.text))
        [
          "systemd/system.conf"
          "systemd/user.conf"
        ];
  };
  "group rdma may manage a fabric, and no rule renames devices" = {
    expected = [
      true
      false
    ];
    actual = [
      (lib.hasInfix ''SUBSYSTEM=="infiniband_mad", GROUP="rdma"'' head.services.udev.extraRules)
      (lib.any (package: lib.hasPrefix "rdma-core" (lib.getName package)) head.services.udev.packages)
    ];
  };
  "RoCE and perftest are open to the nodes of the RDMA fabrics, and to nobody else" = {
    expected = {
      nodes = {
        office = false;
        switch = true;
        ib = true;
      };
      worker = "iptables -A nixos-fw -i eth3 -s 10.3.0.2 -p udp --dport 4791 -j nixos-fw-accept";
      everybody = [ ];
    };
    actual = {
      nodes = lib.mapAttrs (
        name: _: lib.elem 4791 (opened.${name}.udp or [ ]) && lib.elem 18515 (opened.${name}.tcp or [ ])
      ) head.nixwulf.fabrics;
      worker = lib.findFirst (lib.hasInfix "4791") "none" (
        lib.filter (lib.hasInfix "eth3") (lines head.networking.firewall.extraCommands)
      );
      everybody = lib.concatMap (open: open.allowedUDPPorts ++ open.allowedTCPPorts) (
        lib.attrValues head.networking.firewall.interfaces
      );
    };
  };
  "all ports of a trusted fabric are open to its own nodes, and its interface to nobody else" = {
    expected = {
      ib = lib.genAttrs [ "tcp" "udp" ] (_: [
        {
          from = 1;
          to = 65535;
        }
      ]);
      interfaces = [ "lo" ];
    };
    actual = {
      ib = lib.getAttrs [ "tcp" "udp" ] worker.nixwulf.fabric-firewall.ib;
      interfaces = worker.networking.firewall.trustedInterfaces;
    };
  };
  "opensm runs on the head, on no other node, and nowhere if the switch does it" = {
    expected = [
      true
      false
      false
    ];
    actual = map (config: config.systemd.units ? "opensm.service") [
      head
      worker
      managedSwitch
    ];
  };
  "opensm logs to the journal, and comes back without the unit's failing" = {
    expected = [
      true
      false
    ];
    actual = [
      (lib.hasInfix "/bin/opensm --log_file stdout || true" opensm.script)
      (opensm.serviceConfig ? Restart)
    ];
  };
  "perftest is on PATH" = {
    expected = true;
    actual = lib.elem "perftest" (map lib.getName head.environment.systemPackages);
  };
  "a node without such a fabric has none of it" = {
    expected = [
      false
      false
    ];
    actual = [
      plain.nixwulf.rdma.enable
      (lib.elem "ib_uverbs" plain.boot.kernelModules)
    ];
  };
}
