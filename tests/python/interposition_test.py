# A framework may offer functions of OpenSSL's names to the whole process: TensorFlow has BoringSSL
# and is loaded so. hvd of a wheel has OpenSSL inside (cmake/dependencies.cmake). scripts/wheel runs
# this with the wheel that it has built.
import ctypes.util
import os
import pathlib
import subprocess
import sys

import pytest

import hvd
from hvd.launch import hvdrun_path

PROGRAM = """
import ctypes
import hashlib  # Python's own use of OpenSSL, bound before the other functions are there
import sys

ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)
import hvd

hvd.init()
print("the sum is", hvd.allreduce(2, op=hvd.Sum, name="sum"), "of", hvd.size())
"""


def libhvd():
    folder = pathlib.Path(hvd.__file__).parent
    return next(folder.glob("**/libhvd.so*"))


def names_of_openssl():
    library = ctypes.util.find_library("crypto")
    path = next(
        line.split("=>")[1].strip()
        for line in subprocess.check_output(["/sbin/ldconfig", "-p"], text=True).splitlines()
        if line.strip().startswith(f"{library} ")
    )
    symbols = subprocess.check_output(["nm", "-D", "--defined-only", path], text=True).splitlines()
    return [symbol.split()[2].split("@")[0] for symbol in symbols if " T " in symbol]


@pytest.fixture(name="impostor")
def build_impostor(tmp_path):
    """A library with all of OpenSSL's names, in which every function ends the process."""
    names = names_of_openssl()
    assert "EVP_MAC_fetch" in names
    source = tmp_path / "impostor.c"
    alias = 'void {}(void) __attribute__((alias("end_process")));\n'
    aliases = "".join(alias.format(name) for name in names)
    source.write_text(f"void end_process(void) {{ __builtin_trap(); }}\n{aliases}")
    library = tmp_path / "impostor.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-w", "-o", library, source], check=True, timeout=120)
    return library


def test_no_other_library_of_openssls_names_is_called(impostor, tmp_path):
    needed = subprocess.check_output(["readelf", "-d", libhvd()], text=True)
    if "libcrypto" in needed:
        pytest.skip("this libhvd.so uses the system's OpenSSL; only that of a wheel has one inside")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    ended = subprocess.run(
        [hvdrun_path(), "-np", "2", sys.executable, program, impostor],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "LD_BIND_NOW": "1"},
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.count("the sum is 4 of 2") == 2
