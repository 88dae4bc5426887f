"""The operations that pycute has too, with the rules under which its answers and ours may differ.

`python tests/tinygpu/layouts/pycute_operations.py` prints the table of docs/math.md.
"""

from pycute_basics import (
    COALESCE,
    COALESCE_MODES,
    COMPLEMENT,
    COMPOSE,
    CONCATENATE,
    EVALUATE,
    LEFT_INVERSE,
    RIGHT_INVERSE,
    SWIZZLE,
)
from pycute_rules import table
from pycute_tilings import (
    BLOCKED_PRODUCT,
    LOGICAL_DIVIDE,
    LOGICAL_PRODUCT,
    RAKED_PRODUCT,
    TILED_DIVIDE,
    ZIPPED_DIVIDE,
)

OPERATIONS = (
    EVALUATE, COALESCE, COALESCE_MODES, CONCATENATE, COMPOSE, COMPLEMENT, RIGHT_INVERSE, LEFT_INVERSE, LOGICAL_DIVIDE,
    ZIPPED_DIVIDE, TILED_DIVIDE, LOGICAL_PRODUCT, BLOCKED_PRODUCT, RAKED_PRODUCT, SWIZZLE,
)  # fmt: skip

if __name__ == "__main__":
    print(table(OPERATIONS))
