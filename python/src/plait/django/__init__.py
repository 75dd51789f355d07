"""A database backend for Django: ENGINE = "plait.django" in the place of "django.db.backends.sqlite3"."""
