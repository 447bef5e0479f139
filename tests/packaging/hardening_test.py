# What cmake/hardening.cmake asks for is in the programs and libraries that people install.
import os
import pathlib
import platform
import re
import subprocess

import pytest

BUILD = pathlib.Path(os.environ["HVD_BUILD_DIR"])
PROGRAMS = ["bin/hvdrun", "bin/hvd-agent"]
LIBRARIES = ["lib/libhvd.so", "python/hvd/_core.abi3.so", "python/hvd/_tensorflow.so"]
# The agent is linked with the C library itself, and without its symbols.
AGENT = "bin/hvd-agent"


def readelf(file, *options):
    return subprocess.run(
        ["readelf", "--wide", *options, BUILD / file], capture_output=True, text=True, check=True
    ).stdout


@pytest.fixture(params=PROGRAMS + LIBRARIES)
def file(request):
    if request.param not in PROGRAMS and not (BUILD / request.param).exists():
        pytest.skip("not built here")
    return request.param


def test_it_is_loaded_at_a_random_address(file):
    assert re.search(r"Type:\s+DYN", readelf(file, "--file-header"))


def test_the_agent_needs_nothing_of_its_host():
    assert "INTERP" not in readelf(AGENT, "--segments")
    assert "NEEDED" not in readelf(AGENT, "--dynamic")


def test_tables_of_functions_cannot_be_written(file):
    assert "GNU_RELRO" in readelf(file, "--segments")
    assert re.search(r"BIND_NOW|FLAGS_1\).*NOW", readelf(file, "--dynamic"))


def test_nothing_can_be_written_and_run(file):
    flags = dict(
        re.findall(
            r"^\s+(LOAD|GNU_STACK)\s+(?:0x\S+\s+){5}(.{3})", readelf(file, "--segments"), re.M
        )
    )
    assert flags["GNU_STACK"].strip() == "RW"
    for kind, flag in re.findall(
        r"^\s+(LOAD|GNU_STACK)\s+(?:0x\S+\s+){5}(.{3})", readelf(file, "--segments"), re.M
    ):
        assert not ("W" in flag and "E" in flag), (kind, flag)


def test_lengths_and_stacks_are_checked(file):
    if file == AGENT:
        content = (BUILD / file).read_bytes()
        # The words of the C library with which such a check ends the process.
        assert b"buffer overflow detected" in content and b"stack smashing detected" in content
        return
    symbols = readelf(file, "--dyn-syms")
    assert "__stack_chk_fail" in symbols
    if "hvdrun" in file or "libhvd" in file:
        assert re.search(r"UND __(?!stack_)\w+_chk", symbols)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="only these processors have it")
def test_functions_are_marked_for_indirect_calls(file):
    # The first bytes of functions: endbr64. The note that switches it on depends on all libraries.
    content = (BUILD / file).read_bytes()
    assert content.count(b"\xf3\x0f\x1e\xfa") > 10
