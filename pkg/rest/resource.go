package rest

import (
	"context"
	"net/http"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/seal"
)

// Resource is the five operations on a collection whose items of type V are read from a SQL view and written, as
// values of type B, to a table. V has members ID and Name, and embeds Versioned.
//
// A resource that needs more at one step has a function for that step. A route of its own beside the five, such as one that
// edits an item by a link to it, is a Mutation that uses the resource's Collection.
type Resource[V, B any] struct {
	Path  string // of the collection: /port-speed; below each item of another one, /field/{field_id}/value
	ID    string // the name of the path parameter: port_speed_id
	Noun  string // what an item is called in the middle of a sentence: port speed
	Guard guard.Guard
	// OwnGuard guards viewing and editing one item, where that is wider than Guard; nil: it is not.
	OwnGuard guard.Guard
	// ReadGuard guards listing and viewing, where that is wider than Guard; nil: it is not.
	ReadGuard   guard.Guard
	Without     Verbs // which the API does not have
	Extensions  Verbs // which the documented API does not have
	Table       string
	View        string    // the table where it does not say
	Box         *seal.Box // of a table with sealed columns
	List        ListOptions
	Retry       Retry  // what becomes of a create that is sent a second time
	Example     string // of a create; where it is empty, it is made of the examples of B's members
	EditExample string // an example of an edit, which changes what the example of a create makes

	// Scope is which items the caller may know of: there are no others for him, whatever he does. nil: all of them.
	Scope func(context.Context) []pg.Condition
	// Parent is for a collection below each item of another one. It fails where the caller may not do this below the
	// parent of this id: with pgx.ErrNoRows where he may not know of it. B has a member for the parent's id, with the
	// tags path and db.
	Parent func(ctx context.Context, q pg.Querier, id int64, a permission.Access) error

	// Hide says which members some callers do not see.
	Hide Hide

	// Includes are what a view can show besides, as include= names it.
	Includes map[string]func(context.Context, pg.Querier, *V) error

	// Read reads the body of a create or an edit that may be multipart/form-data, or longer than others, and answers it as JSON.
	// What is too large for that it has put elsewhere. nil: bodies are as those of others.
	ReadBody func(*http.Request) ([]byte, error)
	// Prepare does what takes long, or counts a request whatever comes of it, before the unit of work of a create or an
	// edit begins. It is given what was sent, of which nothing is checked yet, and may leave what it worked out in members
	// of B that have no tag.
	Prepare func(context.Context, Verbs, *B) error
	// Allow says, before anything else, whether this caller may create this, or edit or delete the items of these ids. It is
	// asked also before an earlier answer is given again: see Mutation. What is sent may be wrong in other ways. row is nil of
	// items that are there, and ids are of new ones.
	Allow func(ctx context.Context, tx *pg.Tx, ids []int64, row *B) error
	// Lock takes, before anything else, the locks that a change takes. rows are those that are to be inserted. Where
	// items are edited or deleted, it is called without any, and before they are written over once more with what they
	// are to be.
	Lock func(ctx context.Context, tx *pg.Tx, rows ...*B) error
	// Check finds what is wrong with a body that takes the database to know. before is nil, and id 0, of a new item. What is
	// there already it answers by Instead.
	Check func(ctx context.Context, tx *pg.Tx, id int64, before, body *B) error

	Insert func(context.Context, *pg.Tx, *B) (id int64, err error)
	Update func(ctx context.Context, tx *pg.Tx, id int64, body *B) error
	Delete func(ctx context.Context, tx *pg.Tx, item *V) error
	// Close makes sure, before items are deleted that the caller may delete, that no other service refers to them.
	BeforeDelete func(ctx context.Context, tx *pg.Tx, items []V) error

	// Reveal puts into the answer to a create or an edit what is shown this once.
	Reveal func(item *V, body *B)
	// About is what else a change of an item is about.
	Related func(item *V) []pg.Target
}

// Verbs are some of a resource's operations.
type Verbs uint8

// The verbs.
const (
	Listing Verbs = 1 << iota
	Creating
	Viewing
	Editing
	Deleting
)

// Item is the request of an operation on one item.
type Item struct {
	ID int64 `path:"*"`
}

// EditItem is the request of an operation that edits an item.
type EditItem[B any] struct {
	ID    int64 `path:"*"`
	Match IfMatch
	Body  Body[B]
}

type (
	inCollection struct {
		Parent int64 `path:"parent"`
	}
	newItem[B any] struct {
		Parent int64 `path:"parent"`
		Body   Body[B]
	}
	viewItem struct {
		Parent int64 `path:"parent"`
		ID     int64 `path:"*"`
	}
	viewItemAndMore struct {
		Parent  int64  `path:"parent"`
		ID      int64  `path:"*"`
		Include string `query:"include" doc:"what is shown besides; several also with commas between"`
	}
	editItems[B any] struct {
		Parent int64 `path:"parent"`
		IDs    IDs   `path:"*"`
		Match  IfMatch
		Body   Body[B]
	}
	deleteItems struct {
		Parent int64 `path:"parent"`
		IDs    IDs   `path:"*"`
		Match  IfMatch
	}
)
