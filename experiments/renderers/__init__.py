"""One renderer per table and figure: functions of the evidence alone."""
