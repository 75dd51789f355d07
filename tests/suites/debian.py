"""Source packages of Debian, which apt fetches by name and version and which must be the ones meant."""

import hashlib
import os
import subprocess

KEY = "/usr/share/keyrings/debian-archive-keyring.gpg"


def run(command, **kwargs):
    """Runs a command to its success; what it printed is in the error otherwise."""
    done = subprocess.run(command, capture_output=True, text=True, **kwargs)
    if done.returncode != 0:
        raise SystemExit(f"failed: {' '.join(map(str, command))}\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    return done.stdout


def unpack(package, version, archive, sha256, releases, into):
    """Unpacks the original sources of `package`, which one of `releases` has in this version, in the folder `into`."""
    place = into / "apt"
    for folder in ("lists/partial", "cache/archives/partial"):
        (place / folder).mkdir(parents=True, exist_ok=True)
    # Where this machine gets Debian's packages from: other releases are there as well.
    told = run(["apt-get", "indextargets", "--format", "$(ORIGIN) $(LABEL) $(REPO_URI)", "Created-By: Packages"])
    mirror = next(line.split()[2] for line in told.splitlines() if line.startswith("Debian Debian "))
    (place / "sources").write_text("".join(f"deb-src [signed-by={KEY}] {mirror} {r} main\n" for r in releases))
    (place / "conf").write_text(
        f'Dir::Etc::sourcelist "{place}/sources";\nDir::Etc::sourceparts "/dev/null";\nDir::State::lists "{place}/lists";\n'
        f'Dir::Cache "{place}/cache";\nAcquire::Languages "none";\n')
    env = {**os.environ, "APT_CONFIG": str(place / "conf")}
    run(["apt-get", "update"], env=env)
    run(["apt-get", "source", "--download-only", f"{package}={version}"], env=env, cwd=place)
    digest = hashlib.sha256((place / archive).read_bytes()).hexdigest()
    if digest != sha256:
        raise SystemExit(f"{place / archive} is not the package meant: its digest is {digest}")
    run(["tar", "xf", str(place / archive), "-C", str(into)])
