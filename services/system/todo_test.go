package system_test

import (
	"io/fs"
	"testing"
	"time"

	"github.com/ironplane/ironplane/pkg/service"
	"github.com/ironplane/ironplane/pkg/testkit"
	"github.com/ironplane/ironplane/services/system"
)

// Changes from before the migration complete to-do items, at the time of the first one.
func TestTodoOfThePast(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	first := newEdit(1, `{}`, `{}`)
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
			t.Errorf("%s: got it completed at %v, want only system.integration.add, at %v", item.Slug, item.CompletedAt, first.At)
		}
	}
}

// The first matching change completes a to-do item. Later ones do not change it.
func TestTodo(t *testing.T) {
	t.Parallel()
	s := run(t, service.Settings{})
	items := func() map[string]system.TodoItem {
		all := map[string]system.TodoItem{}
		for _, item := range testkit.Decode[[]system.TodoItem](s.Do("GET", "/todo", nil).Want(200)) {
			all[item.Slug] = item
		}
		return all
	}
	for slug, item := range items() {
		if item.CompletedAt != nil {
			t.Errorf("%s: got it completed at %v, want it open", slug, item.CompletedAt)
		}
	}
	s.createGroup("Frankfurt 1")
	s.Do("POST", "/part", `{"name": "EPYC 9354", "part_type": "cpu"}`).Want(200)
	done := testkit.Await(t, "both items are completed", items, func(all map[string]system.TodoItem) bool {
		return all["network.group.add"].CompletedAt != nil && all["hardware.server.part.add"].CompletedAt != nil
	})
	if done["network.entity.add"].CompletedAt != nil {
		t.Error("got network.entity.add completed, want it open")
	}
	part := done["hardware.server.part.add"]
	testkit.Execute(t, s.DB, "UPDATE todo SET completed_at = completed_at - interval '1 hour'")
	last := s.Do("POST", "/part", `{"name": "EPYC 9654", "part_type": "cpu"}`).Want(200).ID()
	s.awaitLog(path("target_type=part&target_id=%d", last), 1)
	reread := testkit.Decode[system.TodoItem](s.Do("GET", path("/todo/%d", part.ID), nil).Want(200))
	if want := part.CompletedAt.Add(-time.Hour); !reread.CompletedAt.Equal(want) {
		t.Errorf("after the second part: got %v, want %v", reread.CompletedAt, want)
	}
	s.Do("GET", "/todo/999", nil).Want(404)
}
