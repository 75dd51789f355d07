"""Creates a container in azurite: `azure_container.py PORT NAME`. The account is the emulator's own, known to all."""

import base64
import email.utils
import hashlib
import hmac
import http.client
import sys

ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


def main():
    port, name = int(sys.argv[1]), sys.argv[2]
    date, version = email.utils.formatdate(usegmt=True), "2021-08-06"
    path = f"/{ACCOUNT}/{name}"
    headers = f"x-ms-date:{date}\nx-ms-version:{version}\n"
    text = "PUT" + "\n" * 12 + headers + f"/{ACCOUNT}{path}\nrestype:container"
    signature = hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("PUT", f"{path}?restype=container", headers={
        "x-ms-date": date,
        "x-ms-version": version,
        "Content-Length": "0",
        "Authorization": f"SharedKey {ACCOUNT}:{base64.b64encode(signature).decode()}",
    })
    answer = connection.getresponse()
    if answer.status not in (201, 409):
        sys.exit(f"azurite answers {answer.status}: {answer.read().decode()}")


main()
