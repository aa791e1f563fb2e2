// Package upload reads bodies that contain a file, without holding the file in memory. The body is multipart/form-data,
// or JSON with the file as base64.
package upload

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strconv"
	"unicode/utf8"

	"github.com/ironplane/ironplane/pkg/problem"
)

const (
	maxTextSize = 1 << 20 // bytes of the body without its file
	maxParts    = 100
	maxNameSize = 255 // bytes of a member's name in JSON
)

// Form describes a body with a file.
type Form struct {
	Member string // the member with the file
	// Put stores the file, and returns the text that replaces it in the body. It returns "" for an empty file.
	Put func(io.Reader) (string, error)
}

// Read reads a body, and returns it as JSON in which the file is replaced by the result of Put.
func (f Form) Read(r *http.Request) ([]byte, error) {
	media, parameters, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case media == "multipart/form-data" && parameters["boundary"] != "":
		return f.readParts(multipart.NewReader(r.Body, parameters["boundary"]))
	case media == "application/json", r.Header.Get("Content-Type") == "":
		s := splitter{Form: f, in: bufio.NewReaderSize(r.Body, 64<<10)}
		return s.read()
	case err != nil:
		return nil, problem.New(problem.UnsupportedMedia, "The header Content-Type is not valid.").Because(err)
	}
	return nil, problem.New(problem.UnsupportedMedia, "The body must be application/json or multipart/form-data.")
}

// tooLargeError refuses a body that is too large without its file.
func tooLargeError() error {
	return problem.New(problem.TooLarge, "The body without its file is larger than %d bytes.", maxTextSize)
}

// readError returns the error of a body that cannot be read. An error for callers, such as one of the store, stays as it
// is.
func readError(err error) error {
	if _, isProblem := errors.AsType[*problem.Error](err); isProblem {
		return err
	}
	return problem.New(problem.BadRequest, "The body ended early or arrived too slowly. Send it again.").Because(err)
}

// readParts reads a multipart body.
func (f Form) readParts(from *multipart.Reader) ([]byte, error) {
	var text bytes.Buffer
	text.WriteByte('{')
	for n := 0; ; n++ {
		part, err := from.NextRawPart()
		if errors.Is(err, io.EOF) {
			text.WriteByte('}')
			return text.Bytes(), nil
		}
		if err != nil {
			return nil, readError(err)
		}
		if n == maxParts {
			return nil, problem.New(problem.TooLarge, "The body has more than %d parts.", maxParts)
		}
		value, name := "", part.FormName()
		if name == f.Member {
			value, err = f.Put(part)
		} else {
			value, err = readPart(part, maxTextSize-text.Len())
		}
		if err != nil {
			return nil, readError(err)
		}
		for _, one := range []string{name, value} {
			if !utf8.ValidString(one) {
				return nil, problem.New(problem.BadRequest, "The body is not valid UTF-8.")
			}
		}
		if n > 0 {
			text.WriteByte(',')
		}
		quoted, err := json.Marshal(map[string]string{name: value})
		if err != nil {
			return nil, fmt.Errorf("encode a part as JSON: %w", err)
		}
		text.Write(quoted[1 : len(quoted)-1])
	}
}

// readPart reads a part of at most limit bytes.
func readPart(part io.Reader, limit int) (string, error) {
	value, err := io.ReadAll(io.LimitReader(part, int64(limit)+1))
	if err == nil && len(value) > limit {
		err = tooLargeError()
	}
	return string(value), err
}

// splitter copies JSON and replaces the file in it. It does not check that the input is valid JSON: the reader of its
// output does.
type splitter struct {
	Form
	in  *bufio.Reader
	out bytes.Buffer
}

// read copies the input to its end, and stores the file in it.
func (s *splitter) read() ([]byte, error) {
	depth, name, isName := 0, "", false
	for {
		c, err := s.in.ReadByte()
		if err == io.EOF {
			return s.out.Bytes(), nil
		}
		if err != nil {
			return nil, readError(err)
		}
		if s.out.Len() >= maxTextSize {
			return nil, tooLargeError()
		}
		if c == '"' && depth == 1 && !isName && name == s.Member {
			if err := s.putFile(); err != nil {
				return nil, readError(err)
			}
			continue
		}
		s.out.WriteByte(c)
		switch c {
		case '{', '[':
			depth++
			isName = depth == 1 && c == '{'
		case '}', ']':
			depth--
		case ',':
			isName = isName || depth == 1
		case ':':
			isName = isName && depth != 1
		case '"':
			text, err := s.copyText()
			if err != nil {
				return nil, readError(err)
			}
			if depth == 1 && isName {
				name = text
			}
		}
	}
}

// copyText copies the rest of a string. It returns the string's value if it is short enough for a member's name.
func (s *splitter) copyText() (string, error) {
	begin := s.out.Len() - 1
	for escaped := false; ; {
		c, err := s.in.ReadByte()
		if err == io.EOF {
			return "", nil // not JSON
		}
		if err != nil {
			return "", err
		}
		if s.out.Len() >= maxTextSize {
			return "", tooLargeError()
		}
		s.out.WriteByte(c)
		switch {
		case escaped:
			escaped = false
		case c == '\\':
			escaped = true
		case c == '"':
			name := ""
			if text := s.out.Bytes()[begin:]; len(text) <= maxNameSize {
				_ = json.Unmarshal(text, &name) // the reader of the output reports invalid JSON
			}
			return name, nil
		}
	}
}

// putFile stores the string that begins here as the file.
func (s *splitter) putFile() error {
	source := &quotedReader{in: s.in}
	value, err := s.Put(base64.NewDecoder(base64.StdEncoding, source))
	switch {
	case source.failed != nil:
		return source.failed
	case errors.As(err, new(base64.CorruptInputError)), errors.Is(err, io.ErrUnexpectedEOF):
		return problem.Member("/"+s.Member, "invalid", "must be base64")
	case err != nil:
		return err
	case !source.ended: // the decoder stops at padding
		if n, err := io.Copy(io.Discard, source); err != nil {
			return err
		} else if n > 0 {
			return problem.Member("/"+s.Member, "invalid", "must be base64, without data after its end")
		}
	}
	s.out.WriteString(strconv.Quote(value))
	return nil
}

// quotedReader reads a JSON string up to its closing quote.
type quotedReader struct {
	in     *bufio.Reader
	ended  bool
	failed error
}

// Read returns the unescaped characters of the string, without spaces and tabs.
func (q *quotedReader) Read(p []byte) (n int, err error) {
	for n < len(p) && !q.ended && q.failed == nil {
		c, err := q.in.ReadByte()
		if err == nil && c == '\\' {
			c, err = q.readEscape()
		} else if c == '"' {
			q.ended = true
			break
		}
		if err == io.EOF {
			err = problem.New(problem.BadRequest, "The body ended early or arrived too slowly. Send it again.")
		}
		if q.failed = err; err == nil && c != ' ' && c != '\t' { // the decoder ignores only line breaks
			p[n] = c
			n++
		}
	}
	switch {
	case n > 0:
		return n, nil
	case q.failed != nil:
		return 0, q.failed
	}
	return 0, io.EOF
}

// readEscape reads an escaped character.
func (q *quotedReader) readEscape() (byte, error) {
	c, err := q.in.ReadByte()
	switch {
	case err != nil:
		return 0, err
	case c == 'n', c == 'r', c == 't':
		return '\n', nil
	case c != 'u':
		return c, nil
	}
	digits := make([]byte, 4)
	if _, err := io.ReadFull(q.in, digits); err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(string(digits), 16, 8)
	if err != nil {
		return '*', nil // not a base64 character
	}
	return byte(n), nil
}
