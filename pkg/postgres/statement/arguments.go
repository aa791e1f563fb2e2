package statement

import (
	"fmt"
	"strings"
)

// Arguments collects a statement's arguments.
type Arguments []any

// Add is how the statement names a value.
func (a *Arguments) Add(value any) string {
	*a = append(*a, value)
	return fmt.Sprintf("$%d", len(*a))
}

// Append is a piece of SQL whose arguments are $1, $2 …, with these moved behind those that are there.
func (a *Arguments) Append(sql string, args []any) string {
	for i := len(args); i >= 1; i-- { // from the last, so that $1 does not take the 1 of $10
		sql = strings.ReplaceAll(sql, fmt.Sprintf("$%d", i), fmt.Sprintf("$\x00%d", len(*a)+i))
	}
	*a = append(*a, args...)
	return "(" + strings.ReplaceAll(sql, "\x00", "") + ")"
}
