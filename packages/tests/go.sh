#!/bin/sh
# The Go module, with no variable of the environment for cgo: go-sqlite3's own tests in it, with and without its tag for another library; and a program in which
# nothing asks for a libsqlite3. The page docs/adopt/go.md is run by `make pages`.
set -eu
module=$NAME-go
[ -e "$PACKAGES/$module.tar.gz" ] || { echo "there is no Go module: \`make packages\` makes it where Go is"; exit 77; }
command -v go >/dev/null || { echo "needs go"; exit 77; }
unset CGO_CFLAGS CGO_LDFLAGS GOFLAGS
tar xf "$PACKAGES/$module.tar.gz"
cat >main.go <<'GO'
package main

import (
	"database/sql"
	"fmt"

	_ "github.com/mattn/go-sqlite3"
)

func main() {
	db, _ := sql.Open("sqlite3", ":memory:")
	var version string
	err := db.QueryRow("SELECT plait_version()").Scan(&version)
	fmt.Println(err, version)
}
GO
go mod init example >/dev/null 2>&1
go mod edit -replace "github.com/mattn/go-sqlite3=./$module"
# The version that it stands for is any.
go get github.com/mattn/go-sqlite3
for tags in "" libsqlite3; do
    go build -tags "$tags" -o program .
    case $(./program) in "<nil> plait $VERSION"*) ;; *) exit 1 ;; esac
    if ldd program | grep libsqlite3; then exit 1; fi
    (cd "$module" && timeout 300 go test -tags "$tags" .)
done
