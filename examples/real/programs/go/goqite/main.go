// goqite, a queue on database/sql and mattn/go-sqlite3, opened as its page does: WAL mode, and 5 s for a lock.
package main

import (
	"context"
	"database/sql"
	"fmt"
	"os"

	_ "github.com/mattn/go-sqlite3"
	"maragu.dev/goqite"

	"real/steps"
)

// The folder of goqite's sources, which has its schema; the build fills it in.
var sources string

type program struct {
	db    *sql.DB
	queue *goqite.Queue
}

func main() { steps.Run(&program{}) }

func (p *program) Open() error {
	db, err := sql.Open("sqlite3", "goqite.db?_journal=WAL&_timeout=5000&_fk=true")
	if err != nil {
		return err
	}
	db.SetMaxOpenConns(1)
	db.SetMaxIdleConns(1)
	p.db, p.queue = db, goqite.New(goqite.NewOpts{DB: db, Name: "jobs"})
	return db.Ping()
}

func (p *program) Prepare() error {
	if err := p.Open(); err != nil {
		return err
	}
	schema, err := os.ReadFile(sources + "/schema_sqlite.sql")
	if err == nil {
		_, err = p.db.Exec(string(schema))
	}
	return err
}

// Sends a message, takes the first of the queue and deletes it.
func (p *program) Operate(acknowledge func(what, id string)) error {
	ctx := context.Background()
	sent, err := p.queue.SendAndGetID(ctx, goqite.Message{Body: []byte("work")})
	if err != nil {
		return err
	}
	acknowledge("sent", string(sent))
	message, err := p.queue.Receive(ctx)
	if err != nil || message == nil {
		return err
	}
	if err := p.queue.Delete(ctx, message.ID); err != nil {
		return err
	}
	acknowledge("deleted", string(message.ID))
	return nil
}

// Each message that was sent waits in the queue or was deleted, and none that was deleted is there.
func (p *program) Missing(acknowledged []steps.Acknowledgement) (string, error) {
	waits := map[string]bool{}
	rows, err := p.db.Query("SELECT id FROM goqite")
	if err != nil {
		return "", err
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return "", err
		}
		waits[id] = true
	}
	isDeleted := map[string]bool{}
	for _, one := range acknowledged {
		if one.What == "deleted" {
			isDeleted[one.ID] = true
		}
	}
	lost, back := 0, 0
	for _, one := range acknowledged {
		switch {
		case one.What == "deleted" && waits[one.ID]:
			back++
		case one.What == "sent" && !waits[one.ID] && !isDeleted[one.ID]:
			lost++
		}
	}
	if lost+back == 0 {
		return "", rows.Err()
	}
	return fmt.Sprintf("%d messages are missing, and %d are back that were deleted", lost, back), rows.Err()
}

func (p *program) Database() (string, *sql.DB) { return "goqite.db", p.db }

func (p *program) Close() error { return p.db.Close() }
