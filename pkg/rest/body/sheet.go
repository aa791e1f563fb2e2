package body

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/ironplane/ironplane/pkg/problem"
)

// maxRows is the maximum number of rows in a CSV body.
const maxRows = 10_000

// cancelCheckRows is the number of rows between checks whether the caller has left.
const cancelCheckRows = 100

// line is a row of a CSV body with the number of its first line.
type line struct {
	number int
	cells  []string
}

// readSheet reads the header and the rows of a CSV body. Rows without content are left out, because spreadsheets add them.
func readSheet(ctx context.Context, text []byte) (header []string, rows []line, err error) {
	if !utf8.Valid(text) {
		return nil, nil, problem.New(problem.BadRequest, "The body is not valid UTF-8. Save it as CSV in UTF-8.")
	}
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	r := csv.NewReader(bytes.NewReader(keepReturns(text)))
	r.Comma = separatorOf(text)
	if header, err = r.Read(); err != nil {
		return nil, nil, csvError(err)
	}
	for i := range header {
		header[i] = strings.TrimSpace(header[i])
	}
	for {
		cells, err := r.Read()
		if errors.Is(err, io.EOF) {
			return header, rows, nil
		}
		if err != nil {
			return nil, nil, csvError(err)
		}
		if !slices.ContainsFunc(cells, func(cell string) bool { return cell != "" }) {
			continue
		}
		if len(rows) == maxRows {
			return nil, nil, problem.New(problem.TooLarge, "The body has more than %d rows.", maxRows)
		}
		if len(rows)%cancelCheckRows == 0 && ctx.Err() != nil {
			return nil, nil, fmt.Errorf("read a CSV body: %w", ctx.Err())
		}
		number, _ := r.FieldPos(0)
		rows = append(rows, line{number, cells})
	}
}

// separatorOf returns the separator of the header. No name of a column has one of them.
func separatorOf(text []byte) rune {
	header, _, _ := bytes.Cut(text, []byte{'\n'})
	if bytes.Count(header, []byte{';'}) > bytes.Count(header, []byte{','}) {
		return ';'
	}
	return ','
}

// keepReturns doubles the carriage return of a line end within quotes, because encoding/csv removes one.
func keepReturns(text []byte) []byte {
	parts := bytes.Split(text, []byte{'"'})
	for i := 1; i < len(parts); i += 2 {
		parts[i] = bytes.ReplaceAll(parts[i], []byte("\r\n"), []byte("\r\r\n"))
	}
	return bytes.Join(parts, []byte{'"'})
}

func csvError(err error) error {
	if errors.Is(err, io.EOF) {
		return problem.New(problem.BadRequest, "The body is empty. The first line must name the columns.")
	}
	if at, ok := errors.AsType[*csv.ParseError](err); ok {
		return problem.New(problem.BadRequest, "The body is not CSV: line %d, column %d: %s.", at.Line, at.Column, at.Err)
	}
	return problem.New(problem.BadRequest, "The body is not CSV.").Because(err)
}
