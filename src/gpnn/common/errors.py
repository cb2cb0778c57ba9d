"""What can go wrong, by name. Every message says the cause, what to check, and the cure."""


class InvalidInputError(ValueError):
    """The data or a setting cannot be used as given."""


class FileError(OSError):
    """A file cannot be found, fetched, read or written."""


class MissingExtraError(ImportError):
    """An optional package is needed and not installed; the message ends with the line that installs it."""


class DeviceError(RuntimeError):
    """There is no GPU that could do the work, or it has too little memory."""


class GPnnWarning(UserWarning):
    """Something was adapted so that the work could go on; the message says what."""


def listed(names: list[str]) -> str:
    """Names for a message: the first ten, and how many more there are."""
    return ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
