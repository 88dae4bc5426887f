"""Makes the modules beside the tests importable (the suite imports tests by path), and shares out the orders.

What is tried under several orders in which asynchronous work may land is tried under one of them in the quick suite: in
turn, from case to case. The long run tries all, and so does a test that is called by its name.
"""

import sys
from collections import defaultdict
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks cases slow whose order is another case's turn; tests that are thinned out otherwise stay as they are."""
    cases: defaultdict[tuple[str, str], list[pytest.Function]] = defaultdict(list)
    for item in items:
        if isinstance(item, pytest.Function) and hasattr(item, "callspec") and HERE in item.path.parents:
            order = item.callspec.params.get("order")
            if isinstance(order, str) and not item.get_closest_marker("sampled"):
                cases[item.nodeid.split("[")[0], item.callspec.id.replace(order, "*")].append(item)
    for turn, found in enumerate(cases.values()):
        quick = [item for item in found if not item.get_closest_marker("slow")]
        for number, item in enumerate(quick):
            if number != turn % len(quick):
                item.add_marker(pytest.mark.slow)
