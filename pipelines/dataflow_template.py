"""The Beam job of `jsonl_to_mysql` as a Dataflow Flex template: what the template's launcher runs.

    FLEX_TEMPLATE_PYTHON_PY_FILE=/template/pipelines/dataflow_template.py
    FLEX_TEMPLATE_PYTHON_SETUP_FILE=/template/setup.py

`dataflow_template.json` beside it describes the parameters. A parameter of a template is one text, so lists are
written with commas: `key=order_id,version`. Workers get the package as the sdist that Beam builds from the setup
file; their container has the drivers, and the passwords in its environment.

Delivery and Parallelism: those of `jsonl_to_mysql`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from oncesink.pipelines import jsonl_to_mysql

LISTS = ("columns", "key")
"""Parameters that hold more than one name."""


def main(arguments: Sequence[str]) -> None:
    """Run the job with the template's parameters, given as `--name=value`."""
    jsonl_to_mysql.main(list(expanded(arguments)))


def expanded(arguments: Sequence[str]) -> Iterator[str]:
    """Yield the job's arguments: lists name by name, the rest as it came. Empty parameters were not filled in."""
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if equals and not value:
            continue
        if equals and name.removeprefix("--") in LISTS:
            yield name
            yield from (each.strip() for each in value.split(","))
        else:
            yield argument


if __name__ == "__main__":
    main(sys.argv[1:])
