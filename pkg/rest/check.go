package rest

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"strings"

	"github.com/ironplane/ironplane/pkg/postgres/pg"
	"github.com/ironplane/ironplane/pkg/postgres/table"
	"github.com/ironplane/ironplane/pkg/rest/body"
	"github.com/ironplane/ironplane/pkg/rest/route"
	"github.com/ironplane/ironplane/pkg/schema"
)

// label names the resource in messages about mistakes.
func (r Resource[V, B]) label() string {
	return "resource " + cmp.Or(r.Path, reflect.TypeFor[V]().String())
}

// Collection checks and assembles the resource. It panics if the declaration has a mistake.
func (r Resource[V, B]) Collection() *Collection[V, B] {
	defer route.PrefixPanic(r.label())
	r.checkNames()
	r.View = cmp.Or(r.View, r.Table)
	all := &Collection[V, B]{
		view:   pg.NewView[V](r.View),
		table:  table.New[B](r.Table, r.View, r.Box),
		hidden: newHidden(reflect.TypeFor[V](), r.Hide),
		cells:  route.NewTable(reflect.TypeFor[V](), func(*schema.Member) bool { return true }),
		kind:   strings.ReplaceAll(strings.Trim(route.PathParameter.ReplaceAllString(r.Path, ""), "/"), "/", "."),
	}
	all.kind = strings.ReplaceAll(all.kind, "..", ".")
	for _, name := range []string{"ID", "Name", "Version"} {
		if _, ok := reflect.TypeFor[V]().FieldByName(name); !ok {
			panic(fmt.Sprintf("%s has no member %s; rest.Versioned has Version", reflect.TypeFor[V](), name))
		}
	}
	all.parent = r.findParent()
	r.checkExamples()
	if r.Lock == nil {
		r.Lock = func(context.Context, *pg.Tx, Verbs, ...*B) error { return nil }
	}
	if r.Check == nil {
		r.Check = func(context.Context, *pg.Tx, int64, *B, *B) error { return nil }
	}
	all.Resource = r
	return all
}

// checkNames panics if a field is missing that every resource needs.
func (r Resource[V, B]) checkNames() {
	for field, value := range map[string]string{"Path": r.Path, "ID": r.ID, "Noun": r.Noun, "Table": r.Table} {
		if value == "" {
			panic(field + " is missing")
		}
	}
	if r.Guard == nil {
		panic("Guard is missing; public operations use guard.Public")
	}
	if r.Without&Creating == 0 && r.Retry == "" {
		panic("Retry is missing: say what a repeated create does")
	}
}

// findParent returns the member of B with the parent's id, or nil if the collection has no parent.
func (r Resource[V, B]) findParent() *schema.Member {
	parameters := route.PathParameter.FindAllStringSubmatch(r.Path, -1)
	if len(parameters) == 0 {
		return nil
	}
	if r.Parent == nil {
		panic("Parent is missing, and the path lies below an item of another resource")
	}
	if r.ReadScope != nil {
		panic("ReadScope is set, and the path lies below an item of another resource")
	}
	name := parameters[len(parameters)-1][1]
	for _, m := range schema.Describe(reflect.TypeFor[B]()).Leaves() {
		if m.Path == name && m.Column != "" {
			return m
		}
	}
	panic(fmt.Sprintf("%s has no member for the parent's id, with the tags path:%q and db", reflect.TypeFor[B](), name))
}

// checkExamples panics if an example would be refused.
func (r Resource[V, B]) checkExamples() {
	plan := body.NewPlan(reflect.TypeFor[B]())
	if r.Without&Creating == 0 {
		if err := plan.CheckExample([]byte(r.Example), schema.Create); err != nil {
			panic(fmt.Sprintf("Example %v", err))
		}
	}
	if r.Without&Editing != 0 {
		return
	}
	if r.EditExample == "" {
		panic("EditExample is missing")
	}
	if err := plan.CheckExample([]byte(r.EditExample), schema.Edit); err != nil {
		panic(fmt.Sprintf("EditExample %v", err))
	}
}

// checkedRoute is a route with statements that the database schema has to accept.
type checkedRoute struct {
	Route
	statements []route.Statement
}

func (n checkedRoute) route() *route.Route {
	o := n.Route.route()
	o.Statements = append(n.statements, o.Statements...)
	return o
}

// statements returns the statements of the table and the view. Steps with functions of their own are left out.
func (r *Collection[V, B]) statements() (all []route.Statement) {
	need := func(is bool, field, sql string) {
		if is {
			all = append(all, route.Statement{Owner: r.label(), Field: field, SQL: sql})
		}
	}
	sql := r.table.SQL
	need(r.has(Editing) || r.has(Deleting), "Table", sql.Lock)
	need(r.has(Creating) && r.Insert == nil, "Table", sql.Insert)
	need(r.has(Editing) && r.Update == nil, "Table", sql.Update)
	need(r.has(Deleting) && r.Delete == nil, "Table", sql.Delete)
	need(r.has(Editing), "View", sql.Load)
	need(true, "View", r.view.SQL())
	return all
}
