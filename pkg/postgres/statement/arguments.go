package statement

import (
	"fmt"
	"strings"
)

// Arguments are the arguments of a statement.
type Arguments []any

// Add appends a value and returns its placeholder.
func (a *Arguments) Add(value any) string {
	*a = append(*a, value)
	return fmt.Sprintf("$%d", len(*a))
}

// Append returns a piece of SQL, in parentheses, whose placeholders $1, $2 … are renumbered to follow the present arguments,
// and appends its arguments.
func (a *Arguments) Append(sql string, args []any) string {
	for i := len(args); i >= 1; i-- { // from the last, so that $1 does not match the start of $10
		sql = strings.ReplaceAll(sql, fmt.Sprintf("$%d", i), fmt.Sprintf("$\x00%d", len(*a)+i))
	}
	*a = append(*a, args...)
	return "(" + strings.ReplaceAll(sql, "\x00", "") + ")"
}
