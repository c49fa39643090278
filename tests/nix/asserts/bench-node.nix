{
  lib,
  evaluate,
  failures,
  ...
}:
let
  key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOtsI/KbJ3SOM7yvQ/ALfJkIxcQnNVreivtTz3x2IvPi test";
  fabric = interface: address: kind: {
    inherit interface address kind;
    prefixLength = 24;
    mtu = 1500;
    speedGbps = 2.5;
  };
  config = evaluate [
    {
      networking.hostName = lib.mkForce "a";
      nixwulf.cluster = {
        name = "test";
        source = "clusters/test.toml";
        sshKeys = [ key ];
        nodes = [
          {
            name = "a";
            addresses.switch = "192.168.1.31";
            addresses.cable = "10.0.0.1";
          }
          {
            name = "b";
            hostKey = "ssh-ed25519 AAAA b";
            addresses.switch = "192.168.1.32";
            addresses.cable = "10.0.0.2";
          }
        ];
      };
      nixwulf.fabrics = {
        switch = fabric "enp1s0" "192.168.1.31" "ethernet";
        cable = fabric "thunderbolt0" "10.0.0.1" "thunderbolt-net";
      };
    }
  ];
  ssh = config.services.openssh.settings;
  users = lib.filterAttrs (_: user: user.isNormalUser || user.name == "root") config.users.users;
  # As driver/nixwulf/data/ports.toml has them, which the driver reads.
  driverPorts = {
    ipv6 = false;
    tcp = [
      9999
      52414
      52415
      50151
      50052
      50053
      50055
      6379
      20000
      50152
      29501
      {
        from = 49152;
        to = 65535;
      }
      {
        from = 32768;
        to = 60999;
      }
      {
        from = 10002;
        to = 19999;
      }
    ];
    udp = [
      123
      52413
      5353
      7842
    ];
  };
  lines = text: lib.filter (line: line != "") (lib.splitString "\n" text);
  commands = [
    "ethtool"
    "iperf"
    "iputils"
    "llama-cpp"
    "lm-sensors"
    "pciutils"
    "python3"
  ];
in
{
  "its assertions hold" = {
    expected = [ ];
    actual = failures config;
  };
  "ssh takes keys only, from root too" = {
    expected = [
      true
      false
      false
      "prohibit-password"
    ];
    actual = [
      config.services.openssh.enable
      ssh.PasswordAuthentication
      ssh.KbdInteractiveAuthentication
      ssh.PermitRootLogin
    ];
  };
  "the folder of models is the bench user's" = {
    expected = {
      user = "bench";
      group = "users";
      mode = "0755";
    };
    actual = lib.getAttrs [
      "user"
      "group"
      "mode"
    ] config.systemd.tmpfiles.settings."10-nixwulf"."/models".d;
  };
  "a session of ssh for each process of the driver is let in" = {
    expected = 64;
    actual = ssh.MaxSessions;
  };
  "root and the bench user, and nobody else, have the cluster's keys" = {
    expected = {
      bench = [ key ];
      root = [ key ];
    };
    actual = lib.mapAttrs (_: user: user.openssh.authorizedKeys.keys) users;
  };
  "what runs as a user cannot let in another key" = {
    expected = [ "/etc/ssh/authorized_keys.d/%u" ];
    actual = lib.toList config.services.openssh.authorizedKeysFiles;
  };
  "logins and units may lock all memory, without RDMA too" = {
    expected = [
      "* hard unlimited"
      "* soft unlimited"
      "root hard unlimited"
      "root soft unlimited"
      true
      true
    ];
    actual =
      lib.sort lib.lessThan (
        map (limit: "${limit.domain} ${limit.type} ${limit.value}") (
          lib.filter (limit: limit.item == "memlock") config.security.pam.loginLimits
        )
      )
      ++ map (settings: settings.Manager.DefaultLimitMEMLOCK == "infinity") [
        config.systemd.settings
        config.systemd.user.settings
      ];
  };
  "nobody has a password, and users are what the configuration says" = {
    expected = {
      mutable = false;
      passwords = [ ];
    };
    actual = {
      mutable = config.users.mutableUsers;
      passwords = lib.concatMap (
        user:
        lib.filter (value: value != null) [
          user.password
          user.hashedPassword
          user.hashedPasswordFile
          user.initialPassword
          user.initialHashedPassword
        ]
      ) (lib.attrValues users);
    };
  };
  "nobody becomes root by sudo" = {
    expected = false;
    actual = config.security.sudo.enable;
  };
  "the bench user reaches the GPU and verbs, and its manager stays" = {
    expected = {
      groups = [
        "rdma"
        "render"
        "systemd-journal"
        "video"
      ];
      linger = true;
    };
    actual = {
      groups = lib.naturalSort users.bench.extraGroups;
      inherit (users.bench) linger;
    };
  };
  "what the driver starts is on PATH" = {
    expected = commands;
    actual = lib.filter (
      name: lib.any (package: lib.getName package == name) config.environment.systemPackages
    ) commands;
  };
  "the llama.cpp on PATH has RPC" = {
    expected = true;
    actual = lib.elem "-DGGML_RPC:BOOL=TRUE" config.nixwulf.bench-node.llamaCpp.cmakeFlags;
  };
  "only ssh is open everywhere, and the driver's ports to the nodes of every fabric" = {
    expected = {
      all = [ 22 ];
      interfaces = [ ];
      cable = driverPorts;
      switch = driverPorts;
    };
    actual = {
      all = config.networking.firewall.allowedTCPPorts;
      interfaces = lib.attrNames config.networking.firewall.interfaces;
    }
    // config.nixwulf.fabric-firewall;
  };
  "a name means the LAN's address, never loopback; each fabric has a name of its own" = {
    expected = {
      "10.0.0.1" = [ "a-cable" ];
      "10.0.0.2" = [ "b-cable" ];
      "127.0.0.2" = [ ];
      "192.168.1.31" = [
        "a"
        "a-switch"
      ];
      "192.168.1.32" = [
        "b"
        "b-switch"
      ];
    };
    actual = config.networking.hosts;
  };
  "a pinned host key is known by every name and address of its node" = {
    expected = {
      b = [
        "b"
        "b-cable"
        "b-switch"
        "10.0.0.2"
        "192.168.1.32"
      ];
    };
    actual = lib.mapAttrs (_: known: known.hostNames) config.programs.ssh.knownHosts;
  };
  "CPUs run at their performance governor" = {
    expected = true;
    actual = lib.hasInfix "--governor performance" config.systemd.services.cpufreq.serviceConfig.ExecStart;
  };
  "tuned, where it runs, has the governor to itself" = {
    expected = null;
    actual =
      (evaluate [
        {
          nixwulf.cluster.sshKeys = [ key ];
          services.tuned.enable = true;
        }
      ]).powerManagement.cpuFreqGovernor;
  };
  "fstrim, logrotate and the collection of garbage wait while the driver's processes run" = {
    expected = [ ];
    actual =
      lib.filter
        (
          name:
          let
            inherit (config.systemd.units."${name}.service") text;
          in
          !lib.all (folder: lib.hasInfix "ConditionPathExistsGlob=!${folder}/nixwulf/*.pid\n" text) [
            "/run/user/*"
            "/run"
          ]
        )
        [
          "fstrim"
          "logrotate"
          "nix-gc"
        ];
  };
  "nothing puts the node to sleep or updates it" = {
    expected = {
      sleep = [
        false
        false
        false
        false
      ];
      upgrade = false;
    };
    actual = {
      sleep = map (name: config.systemd.units."${name}.target".enable) [
        "sleep"
        "suspend"
        "hibernate"
        "hybrid-sleep"
      ];
      upgrade = config.system.autoUpgrade.enable;
    };
  };
  "the kernel's messages can be read without being root" = {
    expected = 0;
    actual = config.boot.kernel.sysctl."kernel.dmesg_restrict";
  };
  "clocks are set by chrony" = {
    expected = true;
    actual = config.services.chrony.enable && !config.services.timesyncd.enable;
  };
  "each node asks the others for the time on the LAN, answers nobody else, and follows one of them without the Internet" =
    {
      expected = [
        "server 192.168.1.32 iburst"
        "allow 10.0.0.2"
        "allow 192.168.1.32"
        "local stratum 10 orphan"
      ];
      actual = lines config.services.chrony.extraConfig;
    };
  "a machine without a cluster serves no time" = {
    expected = [ ];
    actual = lines (evaluate [ { nixwulf.cluster.sshKeys = [ key ]; } ]).services.chrony.extraConfig;
  };
  "a machine whose cluster has no key is left alone" = {
    expected = false;
    actual = (evaluate [ ]).nixwulf.bench-node.enable;
  };
}
