"""Comparisons: statistics over seeds and tasks, and the page that shows them."""

from symbreak.studies.report import make_report
from symbreak.studies.report_figures import draw_curves
from symbreak.training.grid_record import read_grid_record, write_grid_record

__all__ = ["draw_curves", "make_report", "read_grid_record", "write_grid_record"]
