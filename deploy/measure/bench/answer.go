package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// answerReader reads HTTP/1.1 answers of known length, without allocating.
type answerReader struct {
	from *bufio.Reader
	body []byte
}

// longestBody is in bytes. A port speed has a tenth of it.
const longestBody = 4 << 10

func newAnswerReader(from io.Reader) *answerReader {
	return &answerReader{from: bufio.NewReader(from), body: make([]byte, longestBody)}
}

// next is the body of the next answer, which stands until the one after it is read. An answer that is not a 200 is an
// error.
func (a *answerReader) next() ([]byte, error) {
	line, err := a.line()
	if err != nil {
		return nil, fmt.Errorf("read the status: %w", err)
	}
	status := "200"
	if !bytes.HasPrefix(line, []byte("HTTP/1.1 200 ")) {
		status = string(line)
	}
	length, err := a.length()
	if err != nil {
		return nil, fmt.Errorf("the answer %q: %w", status, err)
	}
	if length > len(a.body) {
		return nil, fmt.Errorf("the answer %q: the body has %d bytes", status, length)
	}
	body := a.body[:length]
	if _, err := io.ReadFull(a.from, body); err != nil {
		return nil, fmt.Errorf("read the body: %w", err)
	}
	if status != "200" {
		return nil, fmt.Errorf("the answer is %q: %s", status, bytes.TrimSpace(body))
	}
	return body, nil
}

// length reads the headers, of which it is one.
func (a *answerReader) length() (int, error) {
	length := -1
	for {
		line, err := a.line()
		if err != nil {
			return 0, fmt.Errorf("read the headers: %w", err)
		}
		if len(line) == 0 {
			break
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		if bytes.EqualFold(name, []byte("Content-Length")) {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return 0, fmt.Errorf("read the headers: %w", err)
			}
		}
	}
	if length < 0 {
		return 0, errors.New("it does not say how long it is")
	}
	return length, nil
}

// line is the next line without its end.
func (a *answerReader) line() ([]byte, error) {
	line, err := a.from.ReadSlice('\n')
	return bytes.TrimRight(line, "\r\n"), err
}

// checkPortSpeed tells whether a body is the port speed of this id.
func checkPortSpeed(body []byte, id int64) error {
	var room [32]byte
	want := append(strconv.AppendInt(append(room[:0], `"id":`...), id, 10), ',')
	if !bytes.Contains(body, want) {
		return fmt.Errorf("the answer is another one: %s", bytes.TrimSpace(body))
	}
	return nil
}
