"""The host's processor: which of the instructions that decide an engine's layout of weights it has, from recorded /proc/cpuinfo."""

import pytest

from brim.probes.processor import instructions
from brim.values import Missing

# (the lines that count, our words)
RECORDED = [
    (
        "processor\t: 0\nvendor_id\t: GenuineIntel\nflags\t\t: fpu sse4_2 fma avx f16c avx2 avx512f avx512_vnni amx_bf16 amx_tile amx_int8\n",
        ("avx2", "avx512", "amx"),
    ),
    ("processor\t: 0\nflags\t\t: fpu fma avx f16c avx2 avx_vnni\n", ("avx2",)),
    ("processor\t: 0\nflags\t\t: fpu avx f16c\n", ()),
    ("flags : avx2 fma f16c amx_tile amx_int8\n", ("avx2",)),
    ("processor\t: 0\nBogoMIPS\t: 50.00\nFeatures\t: fp asimd evtstrm aes pmull sha1 asimdhp asimddp sve i8mm bf16\n", ("neon", "dotprod", "i8mm")),
    ("processor\t: 0\nFeatures\t: fp asimd evtstrm aes pmull crc32 cpuid\n", ("neon",)),
    ("vendor_id : IBM/S390\nfeatures\t: esan3 zarch stfle vx vxd vxe gs\n", ("vxe",)),
]


@pytest.mark.parametrize(("text", "words"), RECORDED)
def test_recorded_processors(tmp_path, text, words) -> None:
    """The first processor's line; AMX counts only with the AVX-512 instructions that its code needs."""
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "cpuinfo").write_text(text)
    assert instructions(str(tmp_path)) == words


def test_a_machine_that_does_not_tell(tmp_path) -> None:
    """No file, or one that names none (RISC-V gives no width of its vectors): missing, never an empty answer."""
    assert isinstance(instructions(str(tmp_path)), Missing)
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "cpuinfo").write_text("processor\t: 0\nisa\t\t: rv64imafdcv_zvfh\n")
    found = instructions(str(tmp_path))
    assert isinstance(found, Missing)
    assert "names no instructions" in found.detail
