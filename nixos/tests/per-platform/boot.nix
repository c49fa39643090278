# A node of each platform boots from a disk that disko made: firmware, boot loader, the platform's own initrd.
platform:
{ desk, installed, ... }:
{
  nodes = {
    inherit desk;
    node1 = installed { inherit platform; };
  };

  testScript = ''
    start_all()
    install(node1)
    boot_from_disk(node1)
    node1.wait_for_unit("multi-user.target", timeout=limit(60))
  '';
}
