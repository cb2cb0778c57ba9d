"""Triton kernels: what torch's own operations are too slow for. Each program answers for one query at a time.

They run interpreted where TRITON_INTERPRET=1 was set before the first import, on any machine: so they are tested.
"""
