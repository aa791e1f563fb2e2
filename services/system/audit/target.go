package audit

import (
	"fmt"
	"strings"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
)

// Target is something that a log item is about.
type Target struct {
	ID       int64  `json:"id"`
	Name     string `json:"name"`
	Singular string `json:"singular" doc:"The kind of item, such as IP group."`
	URL      string `json:"url"`
}

// String returns the target as a sentence names it, such as IP group Berlin.
func (t Target) String() string { return strings.TrimSpace(t.Singular + " " + t.Name) }

// Targets are the targets of a log item. The database stores them as the change named them.
type Targets []Target

// Scan implements sql.Scanner.
func (t *Targets) Scan(from any) error {
	var named []pg.Target
	if err := scanJSON(from, &named); err != nil {
		return err
	}
	*t = NewTargets(named)
	return nil
}

// NewTargets returns targets as callers see them.
func NewTargets(named []pg.Target) Targets {
	all := make(Targets, len(named))
	for i, n := range named {
		all[i] = Target{n.ID, n.Name, targetNoun(n), fmt.Sprintf("/%s/%d", n.Type, n.ID)}
		if n.Type == "system/job" { // the name includes the service
			all[i].URL = "/" + n.Type + "/" + n.Name
		}
	}
	return all
}
