"""Search: strategies over a space, behind one function."""

from tinygpu.search.evaluation import ColumnObjective, Evaluation, Failure, Objective, Trial
from tinygpu.search.history import History
from tinygpu.search.minimize import STRATEGIES, minimize
from tinygpu.search.progress import Callback, Progress
from tinygpu.search.result import Result
from tinygpu.search.space import Columns, Point, Space
from tinygpu.search.strategy import Strategy

__all__ = [
    "STRATEGIES",
    "Callback",
    "ColumnObjective",
    "Columns",
    "Evaluation",
    "Failure",
    "History",
    "Objective",
    "Point",
    "Progress",
    "Result",
    "Space",
    "Strategy",
    "Trial",
    "minimize",
]
