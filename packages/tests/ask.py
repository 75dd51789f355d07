"""ask.py ADDRESS WORD: asks until there is an answer, for ten seconds at most, and says whether it has the word."""

import sys
import time
import urllib.request

address, word = sys.argv[1:]
for _ in range(100):
    try:
        text = urllib.request.urlopen(address, timeout=5).read().decode()
        break
    except OSError:
        time.sleep(0.1)
else:
    sys.exit("nobody answers at " + address)
sys.exit(0 if word in text else "there is no " + word + " in what was answered:\n" + text)
