"""One runner per kind of result. Each has a NAME, `add_arguments(parser)`, `jobs(args)`, `run(job, store, args)`, which
gives the result of one job, and `line(job, result)`, which says it in a line."""

from runners import oakley, prediction, real, simulation

RUNNERS = {module.NAME: module for module in (real, prediction, oakley, simulation)}
