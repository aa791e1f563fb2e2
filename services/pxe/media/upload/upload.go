// Package upload reads bodies of which one member is a file, as it comes: multipart/form-data, and JSON in which the file is a
// text in base64.
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
	longest   = 1 << 20 // of what is not the file, in bytes
	mostParts = 100
	longestID = 255 // the name of a member
)

// Form is how a file is sent.
type Form struct {
	Member string // that is the file
	// Put stores the file, and answers by which text the body has it; empty: nothing was sent.
	Put func(io.Reader) (string, error)
}

// Read reads a body, and answers it as JSON, in which the file is what Put has answered.
func (f Form) Read(r *http.Request) ([]byte, error) {
	media, parameters, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case media == "multipart/form-data" && parameters["boundary"] != "":
		return f.readParts(multipart.NewReader(r.Body, parameters["boundary"]))
	case media == "application/json", r.Header.Get("Content-Type") == "":
		s := splitter{Form: f, in: bufio.NewReaderSize(r.Body, 64<<10)}
		return s.read()
	case err != nil:
		return nil, problem.New(problem.UnsupportedMedia, "The body's Content-Type cannot be read.").Because(err)
	}
	return nil, problem.New(problem.UnsupportedMedia, "The body must be application/json or multipart/form-data.")
}

func tooLong() error {
	return problem.New(problem.TooLarge, "The body is larger than %d bytes without its file.", longest)
}

func halfRead(err error) error {
	if _, said := errors.AsType[*problem.Error](err); said {
		return err
	}
	return problem.New(problem.BadRequest, "The body could not be read to its end.").Because(err)
}

// readParts reads the parts of a form.
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
			return nil, halfRead(err)
		}
		if n == mostParts {
			return nil, problem.New(problem.TooLarge, "The body has more than %d parts.", mostParts)
		}
		value, name := "", part.FormName()
		if name == f.Member {
			value, err = f.Put(part)
		} else {
			value, err = partText(part, longest-text.Len())
		}
		if err != nil {
			return nil, halfRead(err)
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
			return nil, fmt.Errorf("write a part as JSON: %w", err)
		}
		text.Write(quoted[1 : len(quoted)-1])
	}
}

func partText(part io.Reader, most int) (string, error) {
	value, err := io.ReadAll(io.LimitReader(part, int64(most)+1))
	if err == nil && len(value) > most {
		err = tooLong()
	}
	return string(value), err
}

// splitter passes JSON on, and puts the file where it is to be. That it is JSON is looked at by who reads what it passes on.
type splitter struct {
	Form
	in  *bufio.Reader
	out bytes.Buffer
}

func (s *splitter) read() ([]byte, error) {
	depth, name, isName := 0, "", false
	for {
		c, err := s.in.ReadByte()
		if err == io.EOF {
			return s.out.Bytes(), nil
		}
		if err != nil {
			return nil, halfRead(err)
		}
		if s.out.Len() >= longest {
			return nil, tooLong()
		}
		if c == '"' && depth == 1 && !isName && name == s.Member {
			if err := s.putFile(); err != nil {
				return nil, halfRead(err)
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
			text, err := s.text()
			if err != nil {
				return nil, halfRead(err)
			}
			if depth == 1 && isName {
				name = text
			}
		}
	}
}

// text passes the rest of a text on, and answers what a name says.
func (s *splitter) text() (string, error) {
	begin := s.out.Len() - 1
	for escaped := false; ; {
		c, err := s.in.ReadByte()
		if err == io.EOF {
			return "", nil // which is no JSON
		}
		if err != nil {
			return "", err
		}
		if s.out.Len() >= longest {
			return "", tooLong()
		}
		s.out.WriteByte(c)
		switch {
		case escaped:
			escaped = false
		case c == '\\':
			escaped = true
		case c == '"':
			name := ""
			if text := s.out.Bytes()[begin:]; len(text) <= longestID {
				_ = json.Unmarshal(text, &name) // else it is no JSON, as who reads it will say
			}
			return name, nil
		}
	}
}

// putFile stores the text that begins here.
func (s *splitter) putFile() error {
	source := &quoted{in: s.in}
	value, err := s.Put(base64.NewDecoder(base64.StdEncoding, source))
	switch {
	case source.failed != nil:
		return source.failed
	case errors.As(err, new(base64.CorruptInputError)), errors.Is(err, io.ErrUnexpectedEOF):
		return problem.Member("/"+s.Member, "invalid", "must be in base64")
	case err != nil:
		return err
	case !source.ended: // a padding ends base64
		if n, err := io.Copy(io.Discard, source); err != nil {
			return err
		} else if n > 0 {
			return problem.Member("/"+s.Member, "invalid", "must be in base64, and goes on behind its end")
		}
	}
	s.out.WriteString(strconv.Quote(value))
	return nil
}

// quoted reads a text of JSON to its end.
type quoted struct {
	in     *bufio.Reader
	ended  bool
	failed error
}

func (q *quoted) Read(p []byte) (n int, err error) {
	for n < len(p) && !q.ended && q.failed == nil {
		c, err := q.in.ReadByte()
		if err == nil && c == '\\' {
			c, err = q.escaped()
		} else if c == '"' {
			q.ended = true
			break
		}
		if err == io.EOF {
			err = problem.New(problem.BadRequest, "The body could not be read to its end.")
		}
		if q.failed = err; err == nil && c != ' ' && c != '\t' { // as base64 leaves out the ends of lines
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

// escaped reads a character as others than ours write it.
func (q *quoted) escaped() (byte, error) {
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
		return '*', nil // which is not of base64
	}
	return byte(n), nil
}
