"""Checks journals of jobs against their JSON Schema: check_schema.py SCHEMA JOURNAL...

Each line has to fit it, and must not when one of its fields is missing or is of another kind.
"""

import json
import sys

import jsonschema

# Fields that a line need not have. `host_name` is left out where the host is not known.
OPTIONAL = {"at", "actions", "host_name"}


def fits(validator, line):
    return next(validator.iter_errors(line), None)


def main():
    with open(sys.argv[1]) as file:
        schema = json.load(file)
    jsonschema.Draft7Validator.check_schema(schema)
    validator = jsonschema.Draft7Validator(schema)
    kinds = set()
    for name in sys.argv[2:]:
        with open(name) as file:
            lines = [json.loads(line) for line in file]
        for number, line in enumerate(lines, 1):
            error = fits(validator, line)
            if error is not None:
                sys.exit(f"{name}, line {number}: {error.message}")
            kind = line.get("event")
            if kind in kinds:
                continue
            kinds.add(kind)
            for field in set(line) - OPTIONAL:
                lacks = {key: value for key, value in line.items() if key != field}
                wrong = {**line, field: [[]]}
                if fits(validator, lacks) is None or fits(validator, wrong) is None:
                    sys.exit(f"{name}, line {number}: the schema does not look at {field!r}")
    print(f"{len(kinds)} kinds of lines fit")


main()
