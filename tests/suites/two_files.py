"""Django's settings for its tests: two databases, each a file, where the environment says (TMPDIR)."""

import tempfile
from pathlib import Path

WHERE = Path(tempfile.gettempdir())
DATABASES = {
    alias: {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": str(WHERE / f"{alias}.sqlite3"),
        "TEST": {"NAME": str(WHERE / f"test-{alias}.sqlite3")},
    }
    for alias in ("default", "other")
}
SECRET_KEY = "of tests"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
USE_TZ = False
