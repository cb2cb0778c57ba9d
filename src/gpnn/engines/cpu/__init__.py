"""On the processor: indexes that find neighbours, and a solver for their systems, compiled."""
