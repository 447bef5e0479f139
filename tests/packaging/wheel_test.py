# What `pip install ./python` compiles, by the settings of python/pyproject.toml. Nothing is built.
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
MOST = 68  # compilers; before files were compiled several at a time there were 122


def output_of(*command):
    ended = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_a_wheel_compiles_only_what_it_holds_and_not_file_by_file(tmp_path):
    settings = (ROOT / "python" / "pyproject.toml").read_text()
    defines = {
        **dict(re.findall(r'^cmake\.define\.(\w+) = "(\w+)"$', settings, re.MULTILINE)),
        "CMAKE_BUILD_TYPE": re.search(r'^cmake\.build-type = "(\w+)"$', settings, re.MULTILINE)[1],
        "SKBUILD": "2",
        "HVD_CUDA": "OFF",
        "Python3_EXECUTABLE": sys.executable,
    }
    arguments = [f"-D{name}={value}" for name, value in defines.items()]
    output_of("cmake", "-G", "Ninja", "-S", ROOT, "-B", tmp_path, *arguments)
    commands = output_of("ninja", "-C", tmp_path, "-t", "commands", "all").splitlines()
    compiled = [command for command in commands if " -c " in command]
    assert 8 < len(compiled) <= MOST
    # TensorFlow has functions of OpenSSL's names, which a libcrypto of its own file would call.
    libhvd = next(command for command in commands if "-soname,libhvd.so" in command)
    assert "libcrypto.a" in libhvd and "libcrypto.so" not in libhvd, libhvd
    for useless in "libhvd_worker.a", "--print-man", "/tests/", "/bench/", "/examples/":
        assert not [command for command in commands if useless in command], useless
