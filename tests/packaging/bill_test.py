# Bills of materials and signatures (scripts/bill), of a package made here from the build tree.
import json
import os
import pathlib
import shutil
import subprocess

import jsonschema
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ["HVD_BUILD_DIR"])
BILL = ROOT / "scripts" / "bill"

# What SPDX 2.3 asks for of the parts that a bill of ours has (its chapters 6 to 11).
IDENTIFIER = {"type": "string", "pattern": "^SPDXRef-[A-Za-z0-9.-]+$"}
LOCATION = {"type": "string", "pattern": r"^(NOASSERTION|NONE|[a-z+]+://.+)$"}
CHECKSUMS = {
    "type": "array",
    "minItems": 1,
    "items": {
        "type": "object",
        "required": ["algorithm", "checksumValue"],
        "properties": {
            "algorithm": {"enum": ["SHA1", "SHA256"]},
            "checksumValue": {"type": "string", "pattern": "^([0-9a-f]{40}|[0-9a-f]{64})$"},
        },
    },
}
SCHEMA = {
    "type": "object",
    "required": [
        *("spdxVersion", "dataLicense", "SPDXID", "name", "documentNamespace"),
        *("creationInfo", "packages", "files", "relationships"),
    ],
    "properties": {
        "spdxVersion": {"const": "SPDX-2.3"},
        "dataLicense": {"const": "CC0-1.0"},
        "SPDXID": {"const": "SPDXRef-DOCUMENT"},
        "documentNamespace": {"type": "string", "pattern": "^https://[^#]+$"},
        "creationInfo": {
            "type": "object",
            "required": ["created", "creators"],
            "properties": {
                "created": {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$"},
                "creators": {
                    "type": "array",
                    "minItems": 1,
                    "items": {"pattern": "^(Tool|Person|Organization): .+$"},
                },
            },
        },
        "packages": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["SPDXID", "name", "downloadLocation", "filesAnalyzed"],
                "properties": {
                    "SPDXID": IDENTIFIER,
                    "downloadLocation": LOCATION,
                    "checksums": CHECKSUMS,
                    "supplier": {"type": "string", "pattern": "^(Person|Organization): .+$"},
                },
                "if": {"properties": {"filesAnalyzed": {"const": True}}},
                "then": {"required": ["packageVerificationCode"]},
            },
        },
        "files": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["SPDXID", "fileName", "checksums"],
                "properties": {
                    "SPDXID": IDENTIFIER,
                    "fileName": {"type": "string", "pattern": r"^\./.+"},
                    "checksums": {
                        **CHECKSUMS,
                        "contains": {"properties": {"algorithm": {"const": "SHA1"}}},
                    },
                },
            },
        },
        "relationships": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["spdxElementId", "relationshipType", "relatedSpdxElement"],
                "properties": {
                    "relationshipType": {
                        "enum": [
                            *("DESCRIBES", "CONTAINS", "DYNAMIC_LINK", "STATIC_LINK"),
                            *("BUILD_DEPENDENCY_OF", "GENERATED_FROM"),
                        ]
                    }
                },
            },
        },
    },
}


def run(*command, environment=None):
    return subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
        env={**os.environ, **(environment or {})},
    )


def expect_success(*command, environment=None):
    ended = run(*command, environment=environment)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """A package with hvdrun and its agent, as Debian's has them."""
    folder = tmp_path_factory.mktemp("package")
    root = folder / "root"
    for name, place in ("hvdrun", "usr/bin"), ("hvd-agent", "usr/libexec/hvd"):
        (root / place).mkdir(parents=True)
        shutil.copy(BUILD / "bin" / name, root / place)
    (root / "DEBIAN").mkdir()
    (root / "DEBIAN" / "control").write_text(
        "Package: hvd\nVersion: 1.2-3\nArchitecture: amd64\nMaintainer: nobody\nDescription: none\n"
    )
    deb = folder / "hvd_1.2-3_amd64.deb"
    expect_success("dpkg-deb", "--root-owner-group", "-Znone", "--build", root, deb)
    return deb


@pytest.fixture(scope="module")
def bill(package):
    expect_success(BILL, BUILD, package)
    return json.loads(pathlib.Path(f"{package}.spdx.json").read_text())


def related(bill, file_name, kind, to_file=False):
    """The names of the packages that are so related to this file."""
    names = {entry["SPDXID"]: entry["name"] for entry in bill["packages"]}
    file = next(entry for entry in bill["files"] if entry["fileName"].endswith(file_name))
    ends = (
        ("relatedSpdxElement", "spdxElementId")
        if to_file
        else ("spdxElementId", "relatedSpdxElement")
    )
    return {
        names[relation[ends[1]]]
        for relation in bill["relationships"]
        if relation["relationshipType"] == kind and relation[ends[0]] == file["SPDXID"]
    }


def test_a_bill_is_spdx(bill):
    jsonschema.validate(bill, SCHEMA)
    named = [entry["SPDXID"] for entry in (bill, *bill["packages"], *bill["files"])]
    assert len(named) == len(set(named))
    for relation in bill["relationships"]:
        assert relation["spdxElementId"] in named and relation["relatedSpdxElement"] in named


def test_another_reader_of_spdx_takes_it(package, bill):
    parse = pytest.importorskip("spdx_tools.spdx.parser.parse_anything")
    validator = pytest.importorskip("spdx_tools.spdx.validation.document_validator")
    document = parse.parse_file(f"{package}.spdx.json")
    assert not validator.validate_full_spdx_document(document)


def test_a_bill_names_what_is_loaded_linked_and_compiled_in(bill):
    loaded = related(bill, "/hvdrun", "DYNAMIC_LINK")
    # As the loader says it, for each library that the program itself names.
    needed = expect_success("readelf", "--dynamic", "--wide", BUILD / "bin" / "hvdrun")
    for library, owner in (
        ("libssl.so.3", "libssl3"),
        ("libssh.so.4", "libssh-4"),
        ("libc.so.6", "libc6"),
    ):
        assert (library in needed) == (owner in loaded), owner
    assert {"libssl3", "libssh-4", "libc6"} <= loaded
    assert not related(bill, "/hvd-agent", "DYNAMIC_LINK"), "the agent loads nothing"
    assert {"libc6-dev"} <= related(bill, "/hvd-agent", "STATIC_LINK")
    assert any(
        name.startswith("libboost")
        for name in related(bill, "/hvdrun", "BUILD_DEPENDENCY_OF", True)
    )

    ssl = next(entry for entry in bill["packages"] if entry["name"] == "libssl3")
    assert ssl["versionInfo"] in expect_success("dpkg-query", "--show", "libssl3")
    assert ssl["licenseDeclared"] == "Apache-2.0"
    main = bill["packages"][0]
    assert (main["name"], main["versionInfo"]) == ("hvd", "1.2-3")


def test_what_was_not_built_there_is_an_error(package, tmp_path):
    other = run(BILL, tmp_path, package)
    assert other.returncode == 1
    assert f"{tmp_path} is no build tree" in other.stderr
    missing = run(BILL, BUILD, tmp_path / "none.deb")
    assert missing.returncode == 1
    assert "there is no file" in missing.stderr
    text = tmp_path / "text.txt"
    text.write_text("x")
    wrong = run(BILL, BUILD, text)
    assert wrong.returncode == 1
    assert "is neither a .deb nor a .whl" in wrong.stderr


@pytest.fixture
def home(tmp_path):
    """A home of GnuPG with one key, which is thrown away."""
    # The agent's socket is there, and its path must be short.
    folder = pathlib.Path(expect_success("mktemp", "--directory", "/tmp/hvd-gpg.XXXXXX").strip())
    environment = {"GNUPGHOME": str(folder)}
    try:
        expect_success(
            *("gpg", "--batch", "--quiet", "--passphrase", "", "--quick-generate-key"),
            *("release@hvd.invalid", "ed25519", "sign", "1d"),
            environment=environment,
        )
        yield environment
    finally:
        run("gpgconf", "--kill", "all", environment=environment)
        shutil.rmtree(folder, ignore_errors=True)


def test_only_a_key_that_is_named_signs(package, bill, home):
    signatures = [pathlib.Path(f"{package}{end}") for end in (".asc", ".spdx.json.asc")]
    assert not any(signature.exists() for signature in signatures), "none was named for the bill"
    expect_success(BILL, "--sign", "release@hvd.invalid", BUILD, package, environment=home)
    for signature in signatures:
        signed = str(signature).removesuffix(".asc")
        expect_success("gpg", "--batch", "--verify", signature, signed, environment=home)
        # Of other bytes it is none.
        other = run("gpg", "--batch", "--verify", signature, BILL, environment=home)
        assert other.returncode != 0
        signature.unlink()


@pytest.mark.parametrize("script", ["package", "wheel", "bill"])
def test_a_key_that_is_missing_is_an_error_before_anything_is_built(script, home):
    words = [ROOT / "scripts" / script, "--sign", "nobody@hvd.invalid", BUILD, "/nonexistent"]
    ended = run(*words, environment=home)
    assert ended.returncode == 1
    assert "--sign nobody@hvd.invalid: GnuPG has no secret key of that name" in ended.stderr
