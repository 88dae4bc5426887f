"""Devices are found by the names that people, drivers and logs have for them, and by no others."""

from __future__ import annotations

import pytest

import tinygpu.devices.library
from tinygpu.devices import Device, device, devices

ALL = devices()
each = pytest.mark.parametrize("gpu", ALL, ids=lambda gpu: gpu.name)

# As cuDeviceGetName and nvidia-smi give them, from published logs.
DRIVER_NAMES = {
    "GTX-1080-Ti": ("NVIDIA GeForce GTX 1080 Ti", "GeForce GTX 1080 Ti"),
    "V100-SXM2-32GB": ("Tesla V100-SXM2-32GB",),
    "RTX-2080-Ti": ("NVIDIA GeForce RTX 2080 Ti", "GeForce RTX 2080 Ti"),
    "T4": ("Tesla T4",),
    "A100-SXM4-40GB": ("NVIDIA A100-SXM4-40GB", "A100-SXM4-40GB"),
    "A100-SXM4-80GB": ("NVIDIA A100-SXM4-80GB",),
    "A10": ("NVIDIA A10",),
    "RTX-3090": ("NVIDIA GeForce RTX 3090",),
    "RTX-A6000": ("NVIDIA RTX A6000",),
    "Jetson-AGX-Orin-64GB": ("Orin", "Orin (nvgpu)"),
    "L4": ("NVIDIA L4",),
    "L40S": ("NVIDIA L40S",),
    "RTX-4090": ("NVIDIA GeForce RTX 4090",),
    "GH200": ("NVIDIA GH200 480GB",),
    "H100-PCIe": ("NVIDIA H100 PCIe",),
    "H100-SXM5": ("NVIDIA H100 80GB HBM3",),
    "H20-96GB": ("NVIDIA H20",),
    "H200-SXM": ("NVIDIA H200",),
    "H800-PCIe": ("NVIDIA H800 PCIe",),
    "B200": ("NVIDIA B200",),
    "GB200": ("NVIDIA GB200",),
    "B300": ("NVIDIA B300 SXM6 AC",),
    "Jetson-Thor-T5000": ("NVIDIA Thor",),
    "RTX-5090": ("NVIDIA GeForce RTX 5090",),
    "RTX-PRO-6000-Blackwell": (
        "NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "NVIDIA RTX PRO 6000 Blackwell Server Edition",
    ),
}  # fmt: skip
# Parts of another size or clock, and slices of a GPU, are none of these.
OTHERS = (
    "NVIDIA H100 NVL", "NVIDIA H100 80GB HBM3 MIG 1g.10gb", "NVIDIA H200 NVL", "NVIDIA H20-3e", "NVIDIA A100-PCIE-40GB",
    "NVIDIA A100 80GB PCIe", "NVIDIA A10G", "NVIDIA L40", "NVIDIA GeForce RTX 4090 D",
    "NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA GeForce RTX 3090 Ti", "Tesla V100-SXM2-16GB", "Tesla P100-PCIE-16GB",
    "NVIDIA GH200 144G HBM3e", "NVIDIA RTX 6000 Ada Generation", "Quadro RTX 6000",
)  # fmt: skip


@each
def test_a_device_is_found_by_the_names_that_drivers_have_for_it(gpu: Device) -> None:
    for name in DRIVER_NAMES[gpu.name]:
        assert device(name) is gpu


@pytest.mark.parametrize("name", OTHERS)
def test_another_part_of_a_like_name_is_not_taken_for_a_device(name: str) -> None:
    with pytest.raises(ValueError, match=r"^unknown device "):
        device(name)


def test_no_two_devices_are_found_by_one_name() -> None:
    from tinygpu.devices import library

    found: dict[str, str] = {}
    for gpu in ALL:
        for key in {library._key(name) for name in (gpu.name, *gpu.aliases)}:
            assert found.setdefault(key, gpu.name) == gpu.name


ALIASES = {
    "a100": "A100-SXM4-80GB",
    "A100-80GB": "A100-SXM4-80GB",
    "a100-40gb": "A100-SXM4-40GB",
    "a10": "A10",
    "a6000": "RTX-A6000",
    "3090": "RTX-3090",
    "rtx3090": "RTX-3090",
    "l4": "L4",
    "l40s": "L40S",
    "4090": "RTX-4090",
    "rtx4090": "RTX-4090",
    "NVIDIA GeForce RTX 4090": "RTX-4090",
    "h100": "H100-SXM5",
    "h100-sxm5": "H100-SXM5",
    "H100 PCIe": "H100-PCIe",
    "h200": "H200-SXM",
    "gh200": "GH200",
    "b200": "B200",
    "gb200": "GB200",
    "b300": "B300",
    "5090": "RTX-5090",
    "rtx_5090": "RTX-5090",
    "t4": "T4",
    "v100": "V100-SXM2-32GB",
    "orin": "Jetson-AGX-Orin-64GB",
    "thor": "Jetson-Thor-T5000",
    "h20": "H20-96GB",
    "h800": "H800-PCIe",
    "2080ti": "RTX-2080-Ti",
    "gtx1080ti": "GTX-1080-Ti",
    "rtx-pro-6000": "RTX-PRO-6000-Blackwell",
}


def test_the_figures_of_no_other_device_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def noted(file: str) -> Device:
        asked.append(file)
        return kept(file)

    kept = tinygpu.devices.library._shipped
    monkeypatch.setattr(tinygpu.devices.library, "_shipped", noted)
    assert (device("RTX 4090").name, asked) == ("RTX-4090", ["rtx-4090.json"])


@pytest.mark.parametrize(("alias", "name"), ALIASES.items())
def test_aliases_find_their_device(alias: str, name: str) -> None:
    assert device(alias).name == name
    assert device(alias.upper()).name == name


def test_every_own_name_finds_its_device() -> None:
    for gpu in ALL:
        assert device(gpu.name) is gpu
        assert device(gpu) is gpu
        assert all(device(alias) is gpu for alias in gpu.aliases)


def test_an_unknown_name_gets_the_closest_ones_and_the_list() -> None:
    with pytest.raises(ValueError) as caught:
        device("rtx4091")
    assert str(caught.value) == (
        "unknown device 'rtx4091'; closest: RTX-4090, RTX-5090, RTX-3090; known: "
        + ", ".join(gpu.name for gpu in ALL)
        + "; or give the path of a device file that ends in .json"
    )
