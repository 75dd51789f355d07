// Plait's library, with the system's libraries that it calls, and our headers: see docs/adopt/go.md.

package sqlite3

/*
#cgo LDFLAGS: -L${SRCDIR} -lsqlite3 -lpthread -ldl -lm
*/
import "C"
