"""Tabular streams: private synthetic tables that follow the data, step by step."""

from engines.tabular.attributes import Attribute, Category, Numeric, Scalar
from engines.tabular.domain import Impossible, TableDomain
from engines.tabular.marginals import Marginals
from engines.tabular.workload import Clique, Workload

__all__ = [
    "Attribute",
    "Category",
    "Clique",
    "Impossible",
    "Marginals",
    "Numeric",
    "Scalar",
    "TableDomain",
    "Workload",
]
