// PocketBase as a framework, with mattn/go-sqlite3 by its option DBConnect and the settings of its own connections:
// WAL mode, synchronous=NORMAL, and 10 s for a lock.
package main

import (
	"database/sql"
	"fmt"
	"math/rand"

	_ "github.com/mattn/go-sqlite3"
	"github.com/pocketbase/dbx"
	"github.com/pocketbase/pocketbase/core"
	_ "github.com/pocketbase/pocketbase/migrations"

	"real/steps"
)

const accounts = 20

type program struct {
	app core.App
	ids []string
}

func main() { steps.Run(&program{}) }

func connect(path string) (*dbx.DB, error) {
	return dbx.Open("sqlite3", path+"?_busy_timeout=10000&_journal_mode=WAL&_synchronous=NORMAL&_foreign_keys=on&_cache_size=-32000")
}

func (p *program) start() error {
	p.app = core.NewBaseApp(core.BaseAppConfig{DataDir: "pb_data", DBConnect: connect})
	return p.app.Bootstrap()
}

func (p *program) Open() error {
	if err := p.start(); err != nil {
		return err
	}
	return p.app.DB().NewQuery("SELECT id FROM accounts ORDER BY id").Column(&p.ids)
}

func (p *program) Prepare() error {
	if err := p.start(); err != nil {
		return err
	}
	account := core.NewBaseCollection("accounts")
	account.Fields.Add(&core.NumberField{Name: "visits"})
	visit := core.NewBaseCollection("visits")
	visit.Fields.Add(&core.TextField{Name: "account"})
	for _, collection := range []*core.Collection{account, visit} {
		if err := p.app.Save(collection); err != nil {
			return err
		}
	}
	for range accounts {
		if err := p.app.Save(core.NewRecord(account)); err != nil {
			return err
		}
	}
	return nil
}

// Counts a visit of an account and writes it down, in one transaction.
func (p *program) Operate(acknowledge func(what, id string)) error {
	var visit *core.Record
	err := p.app.RunInTransaction(func(tx core.App) error {
		account, err := tx.FindRecordById("accounts", p.ids[rand.Intn(len(p.ids))])
		if err != nil {
			return err
		}
		account.Set("visits", account.GetInt("visits")+1)
		if err := tx.Save(account); err != nil {
			return err
		}
		collection, err := tx.FindCachedCollectionByNameOrId("visits")
		if err != nil {
			return err
		}
		visit = core.NewRecord(collection)
		visit.Set("account", account.Id)
		return tx.Save(visit)
	})
	if err == nil {
		acknowledge("visit", visit.Id)
	}
	return err
}

// Each visit is there, and the accounts have counted them.
func (p *program) Missing(acknowledged []steps.Acknowledgement) (string, error) {
	var ids []string
	if err := p.app.DB().NewQuery("SELECT id FROM visits").Column(&ids); err != nil {
		return "", err
	}
	var counted int
	if err := p.app.DB().NewQuery("SELECT sum(visits) FROM accounts").Row(&counted); err != nil {
		return "", err
	}
	is := map[string]bool{}
	for _, id := range ids {
		is[id] = true
	}
	lost := 0
	for _, one := range acknowledged {
		if !is[one.ID] {
			lost++
		}
	}
	if lost == 0 && counted == len(ids) {
		return "", nil
	}
	return fmt.Sprintf("%d of %d visits are missing, and the accounts have counted %d of %d", lost, len(acknowledged), counted, len(ids)), nil
}

func (p *program) Database() (string, *sql.DB) {
	return "pb_data/data.db", p.app.NonconcurrentDB().(*dbx.DB).DB()
}

func (p *program) Close() error { return p.app.ResetBootstrapState() }
