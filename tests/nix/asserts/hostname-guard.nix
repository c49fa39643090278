{ lib, outputs, ... }:
let
  inherit (outputs.nixosConfigurations.mini-3-mini2) config;
  check = config.system.preSwitchChecks.hostname;
in
{
  "a switch compares the machine's name with the node's" = {
    expected = true;
    actual = lib.hasInfix "new=mini2\n" check && lib.hasInfix ''"$current" != "$new"'' check;
  };
  "a first installation, where nothing has booted, passes" = {
    expected = true;
    actual = lib.hasInfix "[ -e /run/booted-system ] &&" check;
  };
  "the refusal names the cluster file and the node, and how to rename" = {
    expected = true;
    actual =
      lib.hasInfix "clusters/mini-3.toml: node '\\''mini2'\\''" check
      && lib.hasInfix "EXPECTED_HOSTNAME=$new $1/bin/switch-to-configuration" check;
  };
}
