"""`rti compare`: the same work under several configs and seeds, as one table with intervals."""

from rti.compare.run import Plan, carry_out, plan, save
from rti.compare.spec import Arm, Service, Spec, read_spec
from rti.compare.stats import METHOD, mean_interval, t_quantile

__all__ = [
    "METHOD",
    "Arm",
    "Plan",
    "Service",
    "Spec",
    "carry_out",
    "mean_interval",
    "plan",
    "read_spec",
    "save",
    "t_quantile",
]
