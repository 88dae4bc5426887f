"""Search: strategies over a space, behind one function."""

from tinygpu.search.evaluation import ColumnObjective, Evaluation, Failure, Objective, Trial
from tinygpu.search.history import History
from tinygpu.search.minimize import minimize
from tinygpu.search.progress import Callback, Progress
from tinygpu.search.result import Result
from tinygpu.search.searchable import Columns, Point, Searchable
from tinygpu.search.strategies import STRATEGIES
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
    "Searchable",
    "Strategy",
    "Trial",
    "minimize",
]
