package system_test

import (
	"io/fs"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/system"
)

// What happened before there were todo items completes them, at the time when it first did.
func TestTodoOfThePast(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	first := edit(1, `{}`, `{}`)
	first.Type, first.At = "integration.created", time.Now().Add(-time.Hour).Truncate(time.Second)
	later := first
	later.At = time.Now()
	s.write("system", first, later)
	migration, err := fs.ReadFile(system.Definition.Migrations, "migrations/0007_todo.sql")
	if err != nil {
		t.Fatal(err)
	}
	s.execute("DROP TABLE todo")
	s.execute(string(migration))
	for _, item := range testkit.Decode[[]system.TodoItem](s.Do("GET", "/todo", nil).Want(200)) {
		if done := item.CompletedAt != nil; done != (item.Slug == "system.integration.add") || done && !item.CompletedAt.Equal(first.At) {
			t.Errorf("%s is completed at %v", item.Slug, item.CompletedAt)
		}
	}
}
