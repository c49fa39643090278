"""What a configuration would do to a machine is compared with the machine."""

import pytest

from machine_factory import DEBIAN, DISK, machine, plan_of
from nixwulf.ops.deploy.flake import Layout

# no output: sections of the driver's own script
NAMES = "lo\neth0 enp1s0 enx00005e005301 \neth1 enp2s0f0"
NVME_BY_VMD = "/dev/nvme0n1 nvme vmd\n/dev/sda sd_mod uas xhci_pci"


def reasons(layout, **changes):
    """Why the node, whose interface is eth0, is refused on this machine."""
    plan = plan_of(
        {"fw1": machine(DEBIAN, hostname="fw1", **changes)}, layouts={"mine-fw1": layout}
    )
    return plan.refusals


def layout(**values):
    return Layout(disks=(DISK,), **values)


def test_an_interface_that_the_machine_does_not_have_is_refused():
    (reason,) = reasons(layout(interfaces=()), interfaces="lo\nenp9s0 eno1")
    assert reason == (
        "Node 'fw1' has no interface 'eth0', which mine.toml names for the fabric 'switch'; it "
        "has, by all names: enp9s0, eno1."
    )


@pytest.mark.parametrize(
    ("values", "changes"),
    [
        ({"interfaces": ()}, {"interfaces": NAMES}),
        ({"interfaces": ()}, {"interfaces": "lo\nwan eth0"}),
        ({"interfaces": ("eth0",)}, {"interfaces": "lo\nenp9s0"}),
        ({"interfaces": None}, {"interfaces": "lo\nenp9s0"}),
        ({"interfaces": ()}, {}),
        (
            {"interfaces": ()},
            {"interfaces": "lo\nenp9s0", "network_cards_without_driver": "0000:02:00.0"},
        ),
    ],
    ids=[
        "its own name",
        "another name that systemd has for it",
        "a name that the configuration gives",
        "names of the kernel's, which no other system knows",
        "a machine of which nothing is known",
        "a card for which the present system has no driver",
    ],
)
def test_an_interface_that_may_be_there_is_no_reason(values, changes):
    assert reasons(layout(**values), **changes) == []


def test_a_disk_whose_driver_is_not_in_the_initrd_is_refused_with_what_to_add():
    found = reasons(layout(modules=("nvme", "ahci")), disk_drivers=NVME_BY_VMD)
    assert found == [
        f"Node 'fw1' reaches its disk '{DISK}' by vmd, which its configuration does not load "
        "before it mounts the disk, so that it would not boot; add "
        "'boot.initrd.availableKernelModules = [ \"vmd\" ];' in a module."
    ]


def test_a_module_has_two_spellings_and_other_disks_need_none():
    known = ("nvme", "vmd")
    assert reasons(layout(modules=known), disk_drivers=NVME_BY_VMD) == []
    virtio = "/dev/nvme0n1 virtio_blk virtio_pci"
    assert reasons(layout(modules=("virtio_blk", "virtio-pci")), disk_drivers=virtio) == []
    assert reasons(layout(), disk_drivers=NVME_BY_VMD) == []
    assert reasons(layout(modules=known)) == []
