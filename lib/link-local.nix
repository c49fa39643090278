# A node's IPv6 address on a fabric where programs find each other by IPv6: link-local, and known to the others, for it ends
# with the IPv4 address. 10.0.0.1 is fe80::a00:1, and the subnet 10.0.0.1/24 is fe80::a00:1/120.
{ lib }:
address:
let
  parts = lib.splitString "/" address;
  octets = map lib.toIntBase10 (lib.splitString "." (lib.head parts));
  group = at: lib.toLower (lib.toHexString (lib.elemAt octets at * 256 + lib.elemAt octets (at + 1)));
in
"fe80::${group 0}:${group 2}"
+ lib.optionalString (lib.length parts > 1) "/${toString (96 + lib.toIntBase10 (lib.last parts))}"
