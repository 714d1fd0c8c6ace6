"""Python imports this at its start where the tests put this folder on the path of a job; see `fault_points`."""

from tests.chaos import fault_points

fault_points.install()
