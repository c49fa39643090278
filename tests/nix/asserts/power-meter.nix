{ evaluate, lib, ... }:
let
  metered = evaluate [
    {
      nixwulf.cluster.sshKeys = [ "ssh-ed25519 AAAA" ];
      nixwulf.power-meter.enable = true;
    }
  ];
  plain = evaluate [ ];
  rules = config: config.services.udev.extraRules;
in
{
  "the benchmarks' user may read the energy counters, others may not" = {
    expected = [
      [ "bench" ]
      true
      true
    ];
    actual = [
      metered.users.groups.bench.members
      (lib.hasInfix "/bin/chgrp bench %S%p/energy_uj" (rules metered))
      (lib.hasInfix "/bin/chmod g+r %S%p/energy_uj" (rules metered))
    ];
  };
  "a switch to it is enough" = {
    expected = [
      [ "multi-user.target" ]
      "oneshot"
    ];
    actual = [
      metered.systemd.services.power-meter.wantedBy
      metered.systemd.services.power-meter.serviceConfig.Type
    ];
  };
  "nothing changes unless it is enabled" = {
    expected = false;
    actual = lib.hasInfix "powercap" (rules plain);
  };
}
