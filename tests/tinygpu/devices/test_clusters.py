"""How many clusters of a size a device holds at once: whole ones, inside its GPCs."""

from __future__ import annotations

import numpy as np
import pytest

from tinygpu.devices import Device, device, devices

SIZES = np.arange(1, 17)


@pytest.mark.parametrize("gpu", [gpu for gpu in devices() if gpu.number("max_cluster_size_nonportable") > 1], ids=str)
def test_clusters_have_whole_places_on_sms_that_exist(gpu: Device) -> None:
    sms = gpu.sms_of_clusters(SIZES)
    assert np.all((sms % SIZES == 0) & (sms > 0) & (sms <= gpu.sm_count))
    doubled = gpu.sms_of_clusters(2 ** np.arange(5))
    assert np.all(np.diff(doubled) <= 0)  # where two clusters of half the size stand, they do too
    assert [int(gpu.sms_of_clusters(int(size))) for size in SIZES] == sms.tolist()


def test_clusters_of_a_b300_fit_its_gpcs() -> None:
    gpcs = (*(16,) * 9, 4)
    counted = [sum(sms // size for sms in gpcs) for size in (4, 8, 16)]
    gpu = device("b300")
    assert [gpu.given(f"active_clusters_of_{size}").value for size in (4, 8, 16)] == counted
    assert sum(gpcs) == gpu.sm_count


def test_what_is_not_known_of_clusters_is_at_most_what_fits() -> None:
    said = [device(name).figure(f"active_clusters_of_{size}") for name in ("h200", "b200", "gb200") for size in (8, 16)]
    assert [figure.value for figure in said] == [15, 7, 18, 9, 19, 9]
    assert {figure.kind for figure in said} == {"derived"}
    assert said[0].source == "rule: 15 as on H100-SXM5, of the same die and as many SMs"
    assert said[2].source == "rule: 18 as on B300, of as many SMs"
    assert said[4].source == (
        "rule: active_clusters_of_4 / 2, rounded down: at most, as the sizes of GPCs are not known"
    )
