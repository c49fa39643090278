# What modules that run an engine on a fabric have in common.
{
  lib,
  utils,
  config,
}:
let
  inherit (config.nixwulf) fabrics;
  inherit (config.nixwulf.cluster) where;

  on = name: fabrics.${name} or null;
in
{
  # This node's place on a fabric, or null: then `known` says what is wrong.
  inherit on;

  option = lib.mkOption {
    type = lib.types.str;
    description = ''
      The fabric that the service is on. It listens there, and only the cluster's other nodes reach it there: the
      engines' protocols have no authentication.
    '';
  };

  # Assertions that what wants a fabric can have it; `option` is how the user spells the setting.
  known =
    option: name:
    let
      fabric = on name;
      others = lib.concatMapStringsSep " or " (other: "\"${other}\"") (lib.attrNames fabrics);
      fix = if fabrics == { } then "put the node on a fabric" else "set it to ${others}";
    in
    [
      {
        assertion = fabric != null;
        message = "${where}: ${option} = \"${name}\" is not a fabric of this node; ${fix}.";
      }
      {
        # The kernel takes it as every interface, networkd as any free address.
        assertion = fabric == null || fabric.address != "0.0.0.0";
        message = "${where}: ${option} = \"${name}\" has the address 0.0.0.0, on which an engine would listen to everybody; give the node its own address on that fabric.";
      }
    ];

  # What starts a unit when the fabric's interface appears. A cable may be unplugged, so no boot waits for it. It is a
  # udev rule and no `wantedBy` of the device: where the NIC's driver is in the initrd, the device unit is active already
  # when the system's units are loaded, and what it wants is not started (systemd's src/core/device.c looks at
  # SYSTEMD_WANTS of devices that are up, for this case).
  startedBy = fabric: unit: ''
    SUBSYSTEM=="net", KERNEL=="${fabric.interface}", TAG+="systemd", ENV{SYSTEMD_WANTS}+="${unit}"
  '';

  # A unit that lives while the fabric's interface does.
  unit =
    fabric:
    let
      device = "sys-subsystem-net-devices-${utils.escapeSystemdPath fabric.interface}.device";
    in
    {
      bindsTo = [ device ];
      after = [
        device
        "systemd-networkd.service"
      ];
      # The interface may be there before its address is: retry until the bind succeeds.
      startLimitIntervalSec = 0;
      serviceConfig = {
        Restart = lib.mkDefault "on-failure";
        RestartSec = 2;
        # PAM's limits are for logins. With 8 MiB, NixOS' default, ibv_reg_mr fails with "Cannot allocate memory".
        LimitMEMLOCK = "infinity";
      };
    };

  # What the kernel drops whatever the firewall lets in: packets of the unit from and to anybody but the nodes on the
  # fabric, and `others`.
  onlyPeers = name: others: {
    IPAddressDeny = "any";
    IPAddressAllow =
      lib.unique ([ (on name).address ] ++ import ./peers.nix { inherit lib config; } name) ++ others;
  };

  # For programs that need a port, perhaps a GPU, and their own cache.
  hardening = {
    DynamicUser = true;
    CapabilityBoundingSet = [ "" ];
    DevicePolicy = "closed";
    LimitCORE = 0;
    LockPersonality = true;
    NoNewPrivileges = true;
    PrivateTmp = true;
    PrivateUsers = true;
    ProtectClock = true;
    ProtectControlGroups = true;
    ProtectHome = true;
    ProtectHostname = true;
    ProtectKernelLogs = true;
    ProtectKernelModules = true;
    ProtectKernelTunables = true;
    ProtectProc = "invisible";
    ProtectSystem = "strict";
    RemoveIPC = true;
    RestrictAddressFamilies = [
      "AF_INET"
      "AF_INET6"
      "AF_NETLINK"
      "AF_UNIX"
    ];
    RestrictNamespaces = true;
    RestrictRealtime = true;
    RestrictSUIDSGID = true;
    SystemCallArchitectures = "native";
    # A call that it lacks fails and kills nobody: drivers of GPUs try calls that they can do without.
    SystemCallErrorNumber = "EPERM";
    SystemCallFilter = [ "@system-service" ];
    UMask = "0077";
  };

  # As systemd reads a path in a list of paths, which spaces end and colons divide.
  quotedPath = path: "\"${lib.replaceString "%" "%%" (toString path)}\"";

  # Devices of the kinds of GPU, by their names in /proc/devices: a folder such as /dev/dri cannot be allowed.
  gpuDevices = {
    cpu = [ ];
    vulkan = [
      "char-drm"
      "char-nvidia*"
    ];
    rocm = [
      "char-drm"
      "char-kfd"
    ];
    cuda = [ "char-nvidia*" ];
  };
  rdmaDevices = fabric: lib.optional (fabric.rdmaDevice != null) "char-infiniband*";

  inherit (import ./ports.nix { inherit lib; }) ranges udp;
}
