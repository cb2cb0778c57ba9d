"""A fitted model as one file: what it says, its bytes, and how any file becomes whole or is not there."""
