# SPDX-License-Identifier: Apache-2.0
"""A daemon whose settings are in a file, and change."""

import os
import signal
import tempfile

from harness import Daemon, wait_until


class Configured(Daemon):
    """A daemon with a file."""

    def __init__(self, text="", *options):
        self.file = tempfile.NamedTemporaryFile(mode="w", prefix="gpuprobed-", suffix=".conf")
        os.fchmod(self.file.fileno(), 0o644)
        self.write(text)
        super().__init__(f"--config={self.file.name}", *options)

    def write(self, text):
        self.file.seek(0)
        self.file.truncate()
        self.file.write(text)
        self.file.flush()

    def hup(self, said):
        """SIGHUP; waits until the log says that."""
        at = len(self.text())
        self.process.send_signal(signal.SIGHUP)
        wait_until(lambda: said in self.text()[at:], said)
        return self.text()[at:]

    def reload(self, text):
        self.write(text)
        return self.hup("reload: done")

    def page(self):
        with open(self.directory + "/interest", "rb") as file:
            return file.read()
