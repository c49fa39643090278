{ lib, evaluate, ... }:
let
  node =
    hostName: device:
    evaluate [
      {
        networking.hostName = lib.mkForce hostName;
        nixwulf.disk.device = lib.mkForce device;
      }
    ];
  first = "/dev/disk/by-id/nvme-ACME_1TB_S1";
  second = "/dev/disk/by-id/nvme-ACME_1TB_S2";
  longest = lib.concatStrings (lib.genList (_: "a") 63);

  labelsOf = config: lib.mapAttrs (_: p: p.label) config.disko.devices.disk.system.content.partitions;
  four = map labelsOf [
    (node "mini1" first)
    (node "mini1" second)
    (node "mini2" first)
    (node "mini2" second)
  ];
  all = lib.concatMap lib.attrValues four;
  mini1 = node "mini1" first;
  labels = labelsOf mini1;
  byLabel = label: "/dev/disk/by-partlabel/${label}";
  script = mini1.disko.devices._create + mini1.disko.devices._mount;
  named = lib.unique (
    map lib.head (lib.filter lib.isList (builtins.split "by-partlabel/([A-Za-z0-9_-]+)" script))
  );
in
{
  "no two disks, of one node or of two, have partitions of the same name" = {
    expected = 8;
    actual = lib.length (lib.unique all);
  };
  "a node's name is read in the names of its partitions" = {
    expected = true;
    actual = lib.all (lib.hasPrefix "disk-mini1-") (lib.attrValues labels);
  };
  "what formats and mounts a disk finds partitions by that disk's names and no other" = {
    expected = lib.sort lib.lessThan (lib.attrValues labels);
    actual = lib.sort lib.lessThan named;
  };
  "a node boots from the names of its own disk" = {
    expected = [
      (byLabel labels.root)
      (byLabel labels.boot)
    ];
    actual = [
      mini1.fileSystems."/".device
      mini1.fileSystems."/boot".device
    ];
  };
  # GPT has room for 36 characters. Names that are longer disko replaces by a hash.
  "names fit into GPT's 36 characters when a host name has 63" = {
    expected = [
      36
      36
      true
    ];
    actual =
      let
        long = lib.attrValues (labelsOf (node longest first));
      in
      map lib.stringLength long ++ [ (lib.all (lib.hasPrefix "disk-aaaa") long) ];
  };
  "host names that begin alike do not make disks alike" = {
    expected = false;
    actual =
      labelsOf (node "${longest}" first) == labelsOf (node "${lib.substring 0 62 longest}b" first);
  };
}
