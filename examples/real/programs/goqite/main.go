// goqite, a queue on database/sql and mattn/go-sqlite3, as its page opens it: WAL mode, and 5 s for a lock.
//
// It does the steps that work.py does for programs in Python, and answers in the same lines of JSON.
package main

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	_ "github.com/mattn/go-sqlite3"
	"maragu.dev/goqite"
)

// The path of goqite's schema, which the build fills in.
var schema string

// What a worker was told: a message was sent, or deleted once its work was done.
type acknowledgement struct{ What, ID string }

type answer struct {
	Done         [][2]float64      `json:"done"`
	Failed       map[string]int    `json:"failed"`
	Longest      float64           `json:"longest"`
	Acknowledged []acknowledgement `json:"acknowledged"`
}

func main() {
	check(os.Chdir(os.Args[2]))
	db, err := sql.Open("sqlite3", "goqite.db?_journal=WAL&_timeout=5000&_fk=true")
	check(err)
	db.SetMaxOpenConns(1)
	db.SetMaxIdleConns(1)
	defer db.Close()
	switch os.Args[1] {
	case "prepare":
		statements, err := os.ReadFile(schema)
		check(err)
		_, err = db.Exec(string(statements))
		check(err)
		say(nil)
	case "work":
		work(db)
	case "verify":
		verify(db)
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func say(value any) { check(json.NewEncoder(os.Stdout).Encode(value)) }

// What is counted: SQLite's words, however the queue has wrapped them.
func kind(err error) string {
	if strings.Contains(err.Error(), "database is locked") {
		return "database is locked"
	}
	return err.Error()
}

// Sends a message, takes the first of the queue and deletes it, again and again until the time is up.
func work(db *sql.DB) {
	told := answer{Done: [][2]float64{}, Failed: map[string]int{}, Acknowledged: []acknowledgement{}}
	for deadline := time.Now().Add(time.Minute); ; {
		err := db.Ping()
		if err == nil {
			break
		}
		told.Failed[kind(err)]++
		if time.Now().After(deadline) {
			log.Fatal(err)
		}
	}
	queue := goqite.New(goqite.NewOpts{DB: db, Name: "jobs"})
	fmt.Println("ready")
	line, err := bufio.NewReader(os.Stdin).ReadString('\n')
	check(err)
	var seconds float64
	_, err = fmt.Sscan(line, &seconds)
	check(err)
	begun := time.Now()
	for start := begun; start.Sub(begun).Seconds() < seconds; start = time.Now() {
		if err := operate(queue, &told); err != nil {
			told.Failed[kind(err)]++
		} else {
			told.Done = append(told.Done, [2]float64{time.Since(begun).Seconds(), time.Since(start).Seconds()})
		}
		told.Longest = max(told.Longest, time.Since(start).Seconds())
	}
	say(told)
}

func operate(queue *goqite.Queue, told *answer) error {
	ctx := context.Background()
	sent, err := queue.SendAndGetID(ctx, goqite.Message{Body: []byte("work")})
	if err != nil {
		return err
	}
	told.Acknowledged = append(told.Acknowledged, acknowledgement{"sent", string(sent)})
	message, err := queue.Receive(ctx)
	if err != nil || message == nil {
		return err
	}
	if err := queue.Delete(ctx, message.ID); err != nil {
		return err
	}
	told.Acknowledged = append(told.Acknowledged, acknowledgement{"deleted", string(message.ID)})
	return nil
}

// Each message that was sent waits in the queue or was deleted, and none that was deleted is there.
func verify(db *sql.DB) {
	var acknowledged []acknowledgement
	check(json.NewDecoder(os.Stdin).Decode(&acknowledged))
	waiting := map[string]bool{}
	rows, err := db.Query("SELECT id FROM goqite")
	check(err)
	for rows.Next() {
		var id string
		check(rows.Scan(&id))
		waiting[id] = true
	}
	check(rows.Err())
	rows.Close()
	deleted := map[string]bool{}
	lost, returned := 0, 0
	for _, one := range acknowledged {
		if one.What == "deleted" {
			deleted[one.ID] = true
			if waiting[one.ID] {
				returned++
			}
		}
	}
	for _, one := range acknowledged {
		if one.What == "sent" && !waiting[one.ID] && !deleted[one.ID] {
			lost++
		}
	}
	missing := ""
	if lost+returned > 0 {
		missing = fmt.Sprintf("%d messages are missing, and %d are back that were deleted", lost, returned)
	}
	var mode string
	check(db.QueryRow("PRAGMA journal_mode").Scan(&mode))
	var plait bool
	check(db.QueryRow("SELECT count(*) FROM pragma_function_list WHERE name = 'plait_version'").Scan(&plait))
	say(map[string]any{"missing": missing, "plait": plait, "modes": map[string]string{"goqite.db": mode}})
}
