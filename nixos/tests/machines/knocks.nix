# What let_in() of prelude.py needs: a program that sends a packet to each port, and one that counts them.
{ lib, pkgs, ... }:
{
  environment.systemPackages = [
    pkgs.nftables
    (pkgs.writeScriptBin "knock" "#!${pkgs.python3}/bin/python3\n${lib.readFile ./knock.py}")
  ];
}
