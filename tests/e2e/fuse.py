# SPDX-License-Identifier: Apache-2.0
"""File systems that tests serve themselves, or do not."""

import ctypes
import os
import tempfile


def mount(name, uid, gid, folder=None):
    """A mount that all users may look at: its folder, and the descriptor on which its server reads and writes. OSError: there is no FUSE here."""
    given, folder = folder, folder or tempfile.mkdtemp(prefix=name + "-")
    device = os.open("/dev/fuse", os.O_RDWR)
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"fd={device},rootmode=40000,user_id={uid},group_id={gid},allow_other"
    if libc.mount(name.encode(), folder.encode(), b"fuse", 0, options.encode()) < 0:
        error = ctypes.get_errno()
        os.close(device)
        if not given:
            os.rmdir(folder)
        raise OSError(error, os.strerror(error))
    return folder, device
