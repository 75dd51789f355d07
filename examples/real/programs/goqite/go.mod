module program

go 1.24.0

require (
	github.com/mattn/go-sqlite3 v1.14.53
	maragu.dev/goqite v0.4.0
)
