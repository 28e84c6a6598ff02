"""Every Ray that is started here has a secret of its own, and none is written to the user's home."""

import os
import secrets

# before Ray is imported, which reads them once
os.environ["RAY_AUTH_MODE"] = "token"
os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112  Ray spells it so
