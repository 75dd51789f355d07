// Package steps does for programs in Go what work.py does for those in Python, and answers in the same lines of JSON.
package steps

import (
	"bufio"
	"database/sql"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"strings"
	"time"
)

// Acknowledgement is one thing that a worker was told to have happened.
type Acknowledgement struct{ What, ID string }

// Program is what is measured. Each step runs in a process of its own, in the folder of the databases.
type Program interface {
	Prepare() error
	// Open connects a worker.
	Open() error
	// Operate is what a worker does again and again.
	Operate(acknowledge func(what, id string)) error
	// Missing says what of the acknowledged is not there, or nothing.
	Missing(acknowledged []Acknowledgement) (string, error)
	// Database is the file with its connection.
	Database() (string, *sql.DB)
	// Close closes every connection: the last one of all leaves a plain SQLite file.
	Close() error
}

// Run does the step that the command line names: prepare, work or verify, and then a folder.
func Run(program Program) {
	check(os.Chdir(os.Args[2]))
	switch os.Args[1] {
	case "prepare":
		check(program.Prepare())
		check(program.Close())
		say(nil)
	case "work":
		work(program)
	case "verify":
		verify(program)
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func say(value any) { check(json.NewEncoder(os.Stdout).Encode(value)) }

// kind is what is counted: SQLite's words, however a layer above has wrapped them.
func kind(err error) string {
	if strings.Contains(err.Error(), "database is locked") {
		return "database is locked"
	}
	return err.Error()
}

func work(program Program) {
	done, failed, acknowledged, longest := [][2]float64{}, map[string]int{}, []Acknowledgement{}, 0.0
	deadline := time.Now().Add(time.Minute)
	for err := program.Open(); err != nil; err = program.Open() {
		failed[kind(err)]++
		if time.Now().After(deadline) {
			log.Fatal(err)
		}
	}
	fmt.Println("ready")
	line, err := bufio.NewReader(os.Stdin).ReadString('\n')
	check(err)
	var seconds float64
	_, err = fmt.Sscan(line, &seconds)
	check(err)
	acknowledge := func(what, id string) { acknowledged = append(acknowledged, Acknowledgement{what, id}) }
	begun := time.Now()
	for start := begun; start.Sub(begun).Seconds() < seconds; start = time.Now() {
		if err := program.Operate(acknowledge); err != nil {
			failed[kind(err)]++
		} else {
			done = append(done, [2]float64{time.Since(begun).Seconds(), time.Since(start).Seconds()})
		}
		longest = max(longest, time.Since(start).Seconds())
	}
	check(program.Close())
	say(map[string]any{"done": done, "failed": failed, "longest": longest, "acknowledged": acknowledged})
}

func verify(program Program) {
	check(program.Open())
	var acknowledged []Acknowledgement
	check(json.NewDecoder(os.Stdin).Decode(&acknowledged))
	missing, err := program.Missing(acknowledged)
	check(err)
	file, db := program.Database()
	var mode string
	check(db.QueryRow("PRAGMA journal_mode").Scan(&mode))
	var plait bool
	check(db.QueryRow("SELECT count(*) FROM pragma_function_list WHERE name = 'plait_version'").Scan(&plait))
	check(program.Close())
	say(map[string]any{"missing": missing, "plait": plait, "modes": map[string]string{file: mode}})
}
