"""A shop on Django's ORM: `atomic` begins with a plain BEGIN, reads, writes. WAL mode by OPTIONS; 5 s for a lock."""

import random

import django
from django.conf import settings

DATABASES = ["shop.db"]
SHOWS = 20

settings.configure(
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": "shop.db",
            "OPTIONS": {"init_command": "PRAGMA journal_mode=WAL"},
        }
    },
    USE_TZ=True,
)
django.setup()

from django.db import connection, models, transaction  # noqa: E402 (Django wants its settings before)


class Show(models.Model):
    """Seats of it can be bought."""

    sold = models.IntegerField(default=0)

    class Meta:
        app_label = "shop"


class Sale(models.Model):
    """A seat that was sold."""

    show = models.ForeignKey(Show, on_delete=models.CASCADE)
    seat = models.IntegerField()
    at = models.DateTimeField(auto_now_add=True)

    class Meta:
        app_label = "shop"
        unique_together = [("show", "seat")]


def prepare():
    """The tables, and the shows."""
    with connection.schema_editor() as editor:
        editor.create_model(Show)
        editor.create_model(Sale)
    Show.objects.bulk_create(Show() for _ in range(SHOWS))


@transaction.atomic
def sell(number):
    """Sells the next seat of a show."""
    show = Show.objects.get(id=number)
    sale = Sale.objects.create(show=show, seat=show.sold)
    show.sold += 1
    show.save()
    return [number, sale.seat]


def worker(number, acknowledged):
    """Sells seats of any show."""
    connection.ensure_connection()
    choice = random.Random(number)
    return lambda: acknowledged.append(sell(choice.randint(1, SHOWS)))


def missing(acknowledged):
    """Each sale is there, and the shows have counted them."""
    sales = {tuple(sale) for sale in Sale.objects.values_list("show_id", "seat")}
    counted = sum(Show.objects.values_list("sold", flat=True))
    lost = {tuple(sale) for sale in acknowledged} - sales
    if lost:
        return f"{len(lost)} of {len(acknowledged)} sales are missing"
    return "" if counted == len(sales) else f"there are {len(sales)} sales, and the shows have counted {counted}"
