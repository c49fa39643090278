# Cluster files as Nix sees them: the same TOML and the same platform facts that the driver reads.
{ lib, platformFacts }:
let
  inherit (lib) concatMap optional;

  # A path inside the flake as its user knows it: clusters/x.toml, not /nix/store/...-source/clusters/x.toml.
  relative =
    file:
    let
      parts = builtins.match "${builtins.storeDir}/[^/]+/(.+)" (toString file);
    in
    if parts == null then toString file else lib.head parts;

  # A node's ports on the fabrics: one on a network, and on cables one or more for each node at the other end, whose entry
  # in nixwulf.fabrics has that node's name too.
  portsOf =
    fabrics:
    concatMap (
      fabric:
      let
        place = fabrics.${fabric};
        port = other: number: end: {
          inherit fabric other end;
          # Of a cable seen from its other end, whose name there has this node's.
          nameTo = node: entryOf fabric (if other == null then null else node) number;
          name = entryOf fabric other number;
          # What the address is called in /etc/hosts.
          label = fabric + nth number;
        };
      in
      if place ? links then
        concatMap (other: lib.imap1 (port other) (lib.toList place.links.${other})) (
          lib.attrNames place.links
        )
      else
        [ (port null 1 place) ]
    ) (lib.attrNames fabrics);

  nth = number: lib.optionalString (number > 1) "-${toString number}";
  entryOf =
    fabric: other: number:
    if other == null then fabric else "${fabric}-${other}${nth number}";

  nodeOf =
    document: values:
    {
      disk = null;
      host_key = null;
      options = { };
      fabrics = { };
    }
    // values
    // rec {
      facts = platformFacts.${values.platform} or null;
      # Nix images machines of clusters that say how; a lab's nodes are namespaces, and plain ssh machines stay as they are.
      managed = document ? deploy && facts != null && facts.system != "any";
      ports = portsOf (values.fabrics or { });
      system = if facts == null then null else facts.system;
    };

  duplicates =
    names: lib.attrNames (lib.filterAttrs (_: same: lib.length same > 1) (lib.groupBy lib.id names));

  # By which the driver checks the file. A match is of the whole value, line feeds too, which '$' lets pass.
  schema = lib.importJSON ../driver/nixwulf/data/schemas/cluster.json;
  nodeSchema = schema.properties.nodes.items.properties;
  unfit =
    what:
    { pattern, ... }:
    value:
    let
      bare = lib.removeSuffix "$" (lib.removePrefix "^" pattern);
    in
    optional (
      !lib.isString value || builtins.match bare value == null
    ) "${what} is ${builtins.toJSON value}, expected ${bare}.";

  # Values that are names in units, rules and files of a node, where another line is another setting.
  portProblems =
    node: port:
    let
      of = key: "node '${node.name}' on '${port.fabric}': ${key}";
      fit = key: unfit (of key) schema."$defs".${key};
    in
    optional (!port.end ? address)
      "node '${node.name}' has no address on the fabric '${port.fabric}'; add address = \"...\" from its subnet."
    ++
      optional (!port.end ? interface)
        "node '${node.name}' has no interface on the fabric '${port.fabric}'; add interface = \"...\" ('ip link' there)."
    ++ concatMap (unfit (of "address") schema."$defs".ipv4) (
      optional (port.end ? address) port.end.address
    )
    ++ concatMap (fit "interface") (optional (port.end ? interface) port.end.interface)
    ++ concatMap (fit "rdma_device") (lib.toList (port.end.rdma_device or [ ]));

  fabricProblems =
    name: fabric:
    let
      fit = key: unfit "fabrics.${name}.${key}" schema."$defs".ipv4;
    in
    concatMap (fit "gateway") (optional (fabric ? gateway) fabric.gateway)
    ++ concatMap (fit "dns") (fabric.dns or [ ])
    ++ optional (
      fabric ? gateway && fabric ? link_prefix
    ) "fabrics.${name}.gateway: cables lead to no router; leave it out.";

  routesOf =
    cluster: node:
    lib.filter (name: (cluster.fabrics.${name} or { }) ? gateway) (lib.attrNames node.fabrics);

  knownPlatforms = lib.concatStringsSep ", " (lib.attrNames platformFacts);

  nodeProblems =
    cluster: node:
    optional (
      node.facts == null
    ) "node '${node.name}' has the unknown platform '${node.platform}'; known: ${knownPlatforms}."
    ++ concatMap (
      name:
      optional (!cluster.fabrics ? ${name})
        "node '${node.name}' is on the fabric '${name}', which is not among [fabrics]; add [fabrics.${name}]."
      ++
        optional ((cluster.fabrics.${name} or { }) ? link_prefix != node.fabrics.${name} ? links)
          "node '${node.name}' on '${name}': 'links' of a node and 'link_prefix' of [fabrics.${name}] belong together, and one of them is missing."
    ) (lib.attrNames node.fabrics)
    ++
      optional (lib.length (routesOf cluster node) > 1)
        "node '${node.name}' has a gateway on '${lib.head (routesOf cluster node)}' and on '${lib.elemAt (routesOf cluster node) 1}', and can have one default route; leave one out."
    ++ concatMap (portProblems node) node.ports
    ++ unfit "a node's name" schema."$defs".name node.name
    ++ unfit "ssh of node '${node.name}'" nodeSchema.ssh node.ssh
    ++ concatMap (unfit "disk of node '${node.name}'" nodeSchema.disk) (
      optional (node.disk != null) node.disk
    )
    ++ lib.optionals node.managed (
      optional (
        builtins.match "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?" node.name == null
      ) "node '${node.name}' cannot be a host name; use letters, digits and '-' only."
      ++
        optional (lib.hasSuffix "-linux" node.system && node.disk == null)
          "node '${node.name}' has no disk; add disk = \"/dev/disk/by-id/...\" ('nixwulf preflight --only facts' lists them)."
    );
in
rec {
  # The cluster of a TOML file; `problems` are sentences, empty when Nix can make nodes of it.
  read =
    file:
    let
      document = builtins.fromTOML (builtins.readFile file);
      cluster = {
        inherit (document) name;
        inherit document;
        source = relative file;
        fabrics = document.fabrics or { };
        sshKeys = document.deploy.ssh_keys or [ ];
        models = document.models or "/models";
        stateVersion = document.deploy.state_version or null;
        options = document.options or { };
        nodes = map (nodeOf document) (document.nodes or [ ]);
      };
    in
    cluster // { problems = map (problem: "${cluster.source}: ${problem}") (problemsOf cluster); };

  problemsOf =
    cluster:
    unfit "name" schema."$defs".name cluster.name
    ++ concatMap (unfit "the name of a fabric" schema."$defs".name) (lib.attrNames cluster.fabrics)
    ++ lib.concatLists (lib.mapAttrsToList fabricProblems cluster.fabrics)
    ++ concatMap (nodeProblems cluster) cluster.nodes
    ++ map (name: "two nodes have the host name '${name}'; rename one.") (
      duplicates (map (node: node.name) cluster.nodes)
    )
    ++ map (address: "two nodes have the address '${address}'; change one.") (
      duplicates (
        concatMap (
          node: concatMap (port: optional (port.end ? address) port.end.address) node.ports
        ) cluster.nodes
      )
    )
    ++ optional (lib.any (lib.hasInfix "PRIVATE KEY-----") cluster.sshKeys) "deploy.ssh_keys has a private key, which would be readable by all on every node; put the line of its .pub file there."
    ++ optional (
      cluster.document ? deploy && cluster.sshKeys == [ ]
    ) "deploy.ssh_keys is empty, so that nobody could log in; add your public key.";

  # The cluster, or the first problem as an error.
  checked =
    file:
    let
      cluster = read file;
    in
    if cluster.problems == [ ] then cluster else throw (lib.head cluster.problems);

  # The same of a cluster that is no example, whose nodes let in whoever has the examples' key.
  own =
    file:
    let
      inherit (fromTOML (builtins.readFile ../driver/nixwulf/data/example_keys.toml)) keys;
      cluster = checked file;
    in
    if lib.any (line: lib.any (key: lib.hasInfix key line) keys) cluster.sshKeys then
      throw "${cluster.source}: deploy.ssh_keys has the key of Nixwulf's examples; put your own in its place ('cat ~/.ssh/*.pub')."
    else
      cluster;

  # What both Nix and the driver must see in one file; tests compare it with the driver's reading.
  summary = cluster: {
    inherit (cluster) name fabrics;
    nodes = map (node: {
      inherit (node)
        name
        platform
        ssh
        disk
        host_key
        fabrics
        ;
    }) cluster.nodes;
  };
}
