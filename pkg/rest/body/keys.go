package body

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ironplane/ironplane/pkg/schema"
)

// Keys finds the earlier row of a sheet with a key that Postgres reports as taken.
type Keys[B any] struct {
	lines   []int
	values  []*B
	indexes map[string]*keyIndex // by the columns of the key
}

// keyIndex has the lines of values by their keys.
type keyIndex struct {
	lines   map[string]int
	covered int // the number of values
}

// Add adds a row that was written.
func (k *Keys[B]) Add(line int, value *B) {
	k.lines, k.values = append(k.lines, line), append(k.values, value)
}

// Find returns the line of the row whose key a value has, or 0. The report reads "Key (name)=(x) already exists."
func (k *Keys[B]) Find(err error, value *B) int {
	refused, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || refused.Code != "23505" {
		return 0
	}
	names, _, _ := strings.Cut(strings.TrimPrefix(refused.Detail, "Key ("), ")=")
	columns := strings.Split(names, ", ")
	key := keyOf(value, columns)
	if key == "" {
		return 0
	}
	if k.indexes[names] == nil {
		if k.indexes == nil {
			k.indexes = map[string]*keyIndex{}
		}
		k.indexes[names] = &keyIndex{lines: map[string]int{}}
	}
	index := k.indexes[names]
	for ; index.covered < len(k.values); index.covered++ {
		index.lines[keyOf(k.values[index.covered], columns)] = k.lines[index.covered]
	}
	return index.lines[key]
}

// keyOf returns the values of the columns as a text, or nothing if B lacks the columns.
func keyOf[B any](value *B, columns []string) (key string) {
	for _, m := range schema.Describe(reflect.TypeFor[B]()).Leaves() {
		if v, err := reflect.ValueOf(value).Elem().FieldByIndexErr(m.Index); err == nil && slices.Contains(columns, m.Column) {
			key += fmt.Sprintf("%q", fmt.Sprint(reflect.Indirect(v)))
		}
	}
	return key
}
