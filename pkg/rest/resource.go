package rest

import (
	"context"
	"net/http"
	"net/url"

	"github.com/ironplane/ironplane/pkg/auth/guard"
	"github.com/ironplane/ironplane/pkg/auth/permission"
	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/seal"
)

// Resource declares the five operations on a collection. Items of type V are read from a SQL view. They are written to a table
// as values of type B. V has members ID and Name, and embeds Versioned.
//
// A resource that needs more at one step sets a function for that step. Other operations, such as one that edits an item by a
// link to it, are Mutations that use the resource's Collection.
type Resource[V, B any] struct {
	Path  string // of the collection: /port-speed, or /field/{field_id}/value below each item of another one
	ID    string // the name of the path parameter: port_speed_id
	Noun  string // the name of an item in the middle of a sentence: port speed
	Guard guard.Guard
	// OwnGuard guards viewing and editing one item. Set it if it admits more callers than Guard.
	OwnGuard guard.Guard
	// CreateGuard and DeleteGuard guard creating and deleting, where that is narrower than Guard; nil: it is not.
	CreateGuard, DeleteGuard guard.Guard
	// ReadGuard guards listing and viewing, where that is wider than Guard; nil: it is not.
	ReadGuard   guard.Guard
	Without     Verbs // which the API does not have
	Extensions  Verbs // which the documented API does not have
	Table       string
	View        string    // default: Table
	Box         *seal.Box // seals the table's sealed columns
	List        ListOptions
	Retry       Retry  // what a repeated create does
	Example     string // a body that creates an item; default: built from the examples of B's members
	EditExample string // a body that changes the item that Example creates

	// Scope returns conditions for the items that the caller may see. All operations treat other items as missing. nil: all
	// items.
	Scope func(context.Context) []pg.Condition
	// ReadScope replaces Scope for listing and viewing, if callers may see more than they may change. It gets the parameters of a
	// list, or the id of the item to view. nil: it is Scope. A nested collection has none.
	ReadScope func(ctx context.Context, asked url.Values, id int64) ([]pg.Condition, error)
	// Parent checks access to the parent of a nested collection. It returns pgx.ErrNoRows if the caller may not see the parent.
	// B has a member for the parent's id, with the tags path and db.
	Parent func(ctx context.Context, q pg.Querier, id int64, a permission.Access) error

	// Hide lists members that some callers do not see.
	Hide Hide

	// Includes are the values of the parameter include of a view. Each function adds its part to the item.
	Includes map[string]func(context.Context, pg.Querier, *V) error

	// CSV says which rows the resource accepts in bodies of text/csv. A resource without Prepare, Reveal and ReadBody accepts
	// them if CSV is nil, too. Rows do not go through Prepare, so CSV.Without lists the members that need it.
	CSV *CSV
	// ReadBody reads the body of a create or an edit, and returns it as JSON. Set it for bodies that are multipart/form-data or
	// larger than usual. It stores elsewhere what is too large for JSON.
	ReadBody func(*http.Request) ([]byte, error)
	// Prepare runs before the transaction of a create or an edit. It is for slow work, and for limits that count failed requests
	// too. The body is not validated yet. Results go into members of B that have no tag.
	Prepare func(context.Context, Verbs, *B) error
	// Allow checks whether the caller may create row, or edit or delete the items with ids. It runs first, and again before a
	// stored response is repeated: see Mutation. The body may still be invalid. ids are empty for a create, and row is nil for
	// existing items.
	Allow func(ctx context.Context, tx *pg.Tx, ids []int64, row *B) error
	// Lock takes the locks of a change before anything else happens. A create passes the row to insert. An edit or a delete
	// passes no rows first. An edit then passes its final rows before it writes them. CSV creates and edits at once.
	Lock func(ctx context.Context, tx *pg.Tx, change Verbs, rows ...*B) error
	// Check validates what needs the database. For a new item before is nil and id is 0. To respond with an existing item, it
	// returns RespondWith.
	Check func(ctx context.Context, tx *pg.Tx, id int64, before, body *B) error

	Insert func(context.Context, *pg.Tx, *B) (id int64, err error)
	// InsertMany inserts the rows of a CSV body at once, and returns their ids in the order of the rows. If it fails, Insert
	// inserts each by itself, to find the rows with errors. nil: always Insert.
	InsertMany func(ctx context.Context, tx *pg.Tx, rows []*B) (ids []int64, err error)
	Update     func(ctx context.Context, tx *pg.Tx, id int64, body *B) error
	Delete     func(ctx context.Context, tx *pg.Tx, item *V) error
	// BeforeDelete makes sure that no other service refers to the items. It runs after the caller was allowed to delete them.
	BeforeDelete func(ctx context.Context, tx *pg.Tx, items []V) error

	// Reveal adds secrets to the response of a create or an edit. They are shown only this once.
	Reveal func(item *V, body *B)
	// Related returns other targets of the record of a change.
	Related func(item *V) []pg.Target
}

// Verbs is a set of the operations of a resource.
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
		Include string `query:"include" doc:"Parts to add to the item. Separate several with commas."`
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
