"""Django on ENGINE = "plait.django": what eight processes write at once is all there, and each transaction is whole."""

import os
import textwrap

from place import Case

SETTINGS = """
    import sys
    import django
    from django.conf import settings

    settings.configure(
        DATABASES={"default": {"ENGINE": "plait.django", "NAME": sys.argv[1], "OPTIONS": {"timeout": 20}}},
        INSTALLED_APPS=["shop"], USE_TZ=True, DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    )
    django.setup()
    import plait
    from django.db import OperationalError, connection, models, transaction
    from shop.models import Sale, Show
"""
MODELS = """
    from django.db import models

    class Show(models.Model):
        title = models.CharField(max_length=30, unique=True)
        sold = models.IntegerField(default=0)

    class Sale(models.Model):
        show = models.ForeignKey(Show, on_delete=models.CASCADE)
        seat = models.IntegerField()
        at = models.DateTimeField(auto_now_add=True)
        price = models.DecimalField(max_digits=6, decimal_places=2, default="9.50")

        class Meta:
            unique_together = [("show", "seat")]
"""
MIGRATE = """
    from django.core.management import call_command
    call_command("makemigrations", "shop", verbosity=0)
    call_command("migrate", verbosity=0)
"""


class Django(Case):
    def setUp(self):
        super().setUp()
        os.makedirs(os.path.join(self.folder, "shop", "migrations"))
        for name in ("__init__.py", "migrations/__init__.py"):
            open(os.path.join(self.folder, "shop", name), "w").close()
        with open(os.path.join(self.folder, "shop", "models.py"), "w") as file:
            file.write(textwrap.dedent(MODELS))
        self.ends_well(self.start(MIGRATE))

    def start(self, program):
        return self.python(textwrap.dedent(SETTINGS) + textwrap.dedent(program), self.path, cwd=self.folder)

    def out(self, program):
        return self.ends_well(self.start(program))

    def test_eight_processes_sell_without_losing_a_sale(self):
        self.out("Show.objects.create(id=1, title='one'); Show.objects.create(id=2, title='two')")
        seller = """
            @plait.retry
            @transaction.atomic
            def sell(number):
                show = Show.objects.get(id=number)
                Sale.objects.create(show=show, seat=show.sold)
                show.sold += 1
                show.save()

            for i in range(20):
                sell(1 + i % 2)
        """
        for process in [self.start(seller) for _ in range(8)]:
            self.ends_well(process)
        out = self.out("print(list(Show.objects.values_list('sold', flat=True)), Sale.objects.count(), connection.vendor)")
        self.assertEqual(out.split("\n")[0], "[80, 80] 160 sqlite")
        self.assertEqual(sorted(name for name in os.listdir(self.folder) if name.startswith("app.db")), ["app.db"])

    def test_the_file_is_concurrent_and_atomic_begins_so(self):
        out = self.out("""
            seen = []
            connection.ensure_connection()
            connection.connection.set_trace_callback(seen.append)
            with transaction.atomic():
                Show.objects.create(title="one")
                with transaction.atomic():
                    Show.objects.create(title="two")
            print(seen[0], seen[-1], connection.connection.execute("PRAGMA journal_mode").fetchone()[0])
            seen.clear()
            with connection.schema_editor() as editor:
                pass
            print([s for s in seen if s.startswith("BEGIN")])
        """)
        self.assertEqual(out.splitlines(), ["BEGIN CONCURRENT COMMIT concurrent", "['BEGIN IMMEDIATE']"])

    def test_a_conflict_is_an_operational_error_and_is_run_again_from_outside_only(self):
        out = self.out("""
            from plait import sqlite3
            Show.objects.create(id=1, title="one")
            other = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=10)
            calls = []

            def change(name):
                calls.append(name)
                show = Show.objects.get(id=1)
                if len(calls) == 1:
                    other.execute("UPDATE shop_show SET sold = sold + 1 WHERE id = 1")
                show.title = name
                show.save()

            try:
                with transaction.atomic():
                    change("refused")
            except OperationalError as e:
                print(e.__cause__.sqlite_errorname, plait.is_retryable(e))
            calls.clear()
            plait.retry(transaction.atomic(change))("again")
            print(calls, Show.objects.get(id=1).title, Show.objects.get(id=1).sold)
            calls.clear()
            try:
                with transaction.atomic():
                    plait.retry(change)("inside")
            except OperationalError as e:
                print(calls)
        """)
        self.assertEqual(out.splitlines(), ["SQLITE_BUSY_SNAPSHOT True", "['again', 'again'] again 2", "['inside']"])

    def test_types_functions_and_aggregates_work(self):
        out = self.out("""
            import datetime, decimal
            from django.db.models import Avg, Count, F, StdDev, Sum
            from django.db.models.functions import ExtractYear, Now, Upper
            show = Show.objects.create(title="Straße")
            sales = Sale.objects.bulk_create([Sale(show=show, seat=i, price=decimal.Decimal(i)) for i in range(1, 4)])
            assert all(sale.pk for sale in sales)
            sale = Sale.objects.get(seat=2)
            assert isinstance(sale.at, datetime.datetime) and sale.at.tzinfo is not None and sale.price == decimal.Decimal("2.00")
            assert Sale.objects.aggregate(Sum("price"), Avg("seat"), StdDev("seat"))["price__sum"] == 6
            assert Sale.objects.annotate(year=ExtractYear("at")).values_list("year", flat=True)[0] == sale.at.year
            assert Show.objects.filter(title__iregex="^STRA").exists() and Show.objects.filter(title__contains="%").count() == 0
            with connection.cursor() as cursor:
                cursor.execute("SELECT %(a)s, '%%'", {"a": 3})
                assert cursor.fetchone() == (3, "%")
                cursor.executemany("UPDATE shop_sale SET seat = seat + %s WHERE seat = %s", [(10, 1), (10, 2)])
            try:
                with transaction.atomic():
                    Sale.objects.create(show_id=99, seat=1)
            except Exception as e:
                print(type(e).__name__)
        """)
        self.assertEqual(out.split(), ["IntegrityError"])

    def test_modes_of_transactions_are_an_option(self):
        program = """
            connection.settings_dict["OPTIONS"]["transaction_mode"] = sys.argv[2] if len(sys.argv) > 2 else "nonsense"
            try:
                connection.ensure_connection()
            except Exception as e:
                print(type(e).__name__)
        """
        self.assertEqual(self.out(program).split(), ["ImproperlyConfigured"])

    def test_djangos_own_test_runner_works_with_files_and_clones(self):
        with open(os.path.join(self.folder, "shop", "tests.py"), "w") as file:
            file.write(textwrap.dedent("""
                from django.test import TestCase, TransactionTestCase
                from shop.models import Show

                class One(TestCase):
                    def test_one(self):
                        Show.objects.create(title="one")
                        self.assertEqual(Show.objects.count(), 1)

                class Two(TransactionTestCase):
                    def test_two(self):
                        Show.objects.create(title="two")
                        self.assertEqual(Show.objects.count(), 1)
            """))
        for name in ("None", "'test.db'"):
            program = f"""
                connection.settings_dict["TEST"]["NAME"] = {name}
                from django.test.utils import get_runner
                failures = get_runner(settings)(verbosity=0, interactive=False, parallel=2).run_tests(["shop"])
                sys.exit(bool(failures))
            """
            self.out(program)
        self.assertNotIn("test.db", os.listdir(self.folder))
