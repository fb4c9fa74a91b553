"""Nodes as hwloc's XML describes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.formats.spec.hwloc import HwlocError, Node, read

HEAD = '<?xml version="1.0"?><topology><object type="Machine"><info name="HostName" value="n7"/>'
CORE = '<object type="Core"><object type="PU"/><object type="PU"/></object>'


def device(*names: str, backend: str = "") -> str:
    info = f'<info name="Backend" value="{backend}"/>' if backend else ""
    return (
        "<object type='PCIDev'>"
        + "".join(f"<object type='OSDev' name='{n}'>{info}</object>" for n in names)
        + "</object>"
    )


def test_cores_and_gpus_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "0.xml"
    path.write_text(HEAD + CORE * 3 + device("cuda0", "nvml0") + device("x", backend="RSMI") + "</object></topology>")
    assert read(str(path)) == Node("n7", 3, 2)


def test_what_drives_a_screen_is_no_gpu_and_a_gpu_counts_once(tmp_path: Path) -> None:
    path = tmp_path / "0.xml"
    devices = (
        device("card0")
        + device("rsmi0", backend="GL")
        + device("rsmi0", "opencl0d0")
        + "<object type='OSDev' name='ze0'/>"
    )
    path.write_text(HEAD.replace("n7", "") + '<object type="PU"/>' + devices + "</object></topology>")
    assert read(str(path)) == Node("", 1, 2)


@pytest.mark.parametrize("text", ["", "<topology/>", "<topology>"])
def test_other_files_are_refused_by_name(tmp_path: Path, text: str) -> None:
    path = tmp_path / "0.xml"
    path.write_text(text)
    with pytest.raises(HwlocError, match=r"0\.xml: "):
        read(str(path))
    with pytest.raises(HwlocError, match="No such file"):
        read(str(tmp_path / "1.xml"))
