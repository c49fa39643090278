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
      The fabric that the service is on. It listens there and the firewall opens there, nowhere else: the
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

  # A unit that lives while the fabric's interface does. A cable may be unplugged: the device, unlike
  # multi-user.target, holds up no boot while it is waited for, and it starts the unit when it appears.
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
      wantedBy = lib.mkDefault [ device ];
      # The interface may be there before its address is: retry until the bind succeeds.
      startLimitIntervalSec = 0;
      serviceConfig = {
        Restart = lib.mkDefault "on-failure";
        RestartSec = 2;
        # PAM's limits are for logins. With 8 MiB, NixOS' default, ibv_reg_mr fails with "Cannot allocate memory".
        LimitMEMLOCK = "infinity";
      };
    };

  # For programs that need a port, perhaps a GPU, and their own cache.
  hardening = {
    DynamicUser = true;
    CapabilityBoundingSet = [ "" ];
    DevicePolicy = "closed";
    LockPersonality = true;
    NoNewPrivileges = true;
    PrivateTmp = true;
    ProtectClock = true;
    ProtectControlGroups = true;
    ProtectHome = true;
    ProtectHostname = true;
    ProtectKernelLogs = true;
    ProtectKernelModules = true;
    ProtectKernelTunables = true;
    ProtectProc = "invisible";
    ProtectSystem = "strict";
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
    UMask = "0077";
  };

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

  # Where programs listen for other nodes.
  ports = lib.mapAttrs (_: range: {
    from = lib.elemAt range 0;
    to = lib.elemAt range 1;
  }) (fromTOML (builtins.readFile ../driver/nixwulf/data/ports.toml)).ranges;
}
