package source

import (
	"errors"
	"fmt"
)

const maxShownErrors = 10

// errorList collects the errors of a file, and keeps the first ten of them.
type errorList struct {
	shown []error
	more  int
}

func (f *errorList) add(format string, args ...any) {
	if len(f.shown) == maxShownErrors {
		f.more++
		return
	}
	f.shown = append(f.shown, fmt.Errorf(format, args...))
}

// requireReference adds an error unless the reference is 0 or one of the records.
func requireReference[T any](f *errorList, from Source, records map[int64]T, to Source) {
	if _, exists := records[to.PK]; !exists && to.PK != 0 {
		f.add("%s: refers to %s, which is not in the file; export that model, too", from, to)
	}
}

func (f *errorList) err() error {
	if f.more > 0 {
		return errors.Join(append(f.shown, fmt.Errorf("and %d more", f.more))...)
	}
	return errors.Join(f.shown...)
}
