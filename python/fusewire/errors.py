"""What fusewire raises."""


class Error(RuntimeError):
    """Anything that went wrong.

    Fields that have nothing to say are ``None``.
    """

    #: Fault: the rank that gave up first. LostError: that rank.
    rank = None
    #: Fault: the peer that it had to do with.
    peer = None
    #: Fault: the channel, or the signal.
    channel = None
    #: Fault: what the rank had launched last.
    kernel = None
    #: Fault: what it waited for, or where it panicked.
    waited_for = None


class Misuse(Error, ValueError):
    """Something was asked for that cannot be; nothing was done."""


class Fault(Error):
    """A kernel ended before its work was done. The transport is of use again after ``renew``."""


class PeerError(Error):
    """Ranks disagree, are missing, or did not come in time."""


class LostError(Error):
    """A rank died."""


class DeviceError(Error):
    """CUDA or the operating system refused something."""
