"""What a process that a test starts may do, so that root is held to it as anybody else is."""

import ctypes
import os
import resource

_DROP, _OVERRIDE = 24, 1  # prctl: PR_CAPBSET_DROP, CAP_DAC_OVERRIDE


def heed_permissions():
    """Before a program starts: what root may not write stays unwritten, as for anybody else."""
    if os.getuid() == 0:
        ctypes.CDLL(None).prctl(_DROP, _OVERRIDE, 0, 0, 0)


def limited(name, most):
    """Before a program starts: a limit of the system, "RLIMIT_NOFILE" for instance."""
    kind = getattr(resource, name)
    return lambda: resource.setrlimit(kind, (most, most))
