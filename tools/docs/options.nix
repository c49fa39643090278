# The options nixwulf.* of a node, as data: evaluated only, nothing is built (the package `options` builds nixpkgs' own reference).
node:
let
  inherit (node.pkgs) lib;
  shown = option: option.visible == true && !option.internal;
in
map (option: {
  inherit (option) name type;
  description = option.description or "";
  default = option.default.text or null;
}) (lib.filter shown (lib.optionAttrSetToDocList { inherit (node.options) nixwulf; }))
