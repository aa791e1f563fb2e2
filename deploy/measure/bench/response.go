package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// responseReader reads HTTP/1.1 responses with a Content-Length, without allocating.
type responseReader struct {
	from *bufio.Reader
	body []byte
}

// maxBodyBytes is ten times the size of a port speed.
const maxBodyBytes = 4 << 10

func newResponseReader(from io.Reader) *responseReader {
	return &responseReader{from: bufio.NewReader(from), body: make([]byte, maxBodyBytes)}
}

// next returns the body of the next response. It is valid until the next call. A status other than 200 is an error.
func (a *responseReader) next() ([]byte, error) {
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
		return nil, fmt.Errorf("the response %q: %w", status, err)
	}
	if length > len(a.body) {
		return nil, fmt.Errorf("the response %q: the body has %d bytes", status, length)
	}
	body := a.body[:length]
	if _, err := io.ReadFull(a.from, body); err != nil {
		return nil, fmt.Errorf("read the body: %w", err)
	}
	if status != "200" {
		return nil, fmt.Errorf("got the response %q: %s", status, bytes.TrimSpace(body))
	}
	return body, nil
}

// length reads the headers, and returns the value of Content-Length.
func (a *responseReader) length() (int, error) {
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
		return 0, errors.New("it has no Content-Length")
	}
	return length, nil
}

// line returns the next line without its line break.
func (a *responseReader) line() ([]byte, error) {
	line, err := a.from.ReadSlice('\n')
	return bytes.TrimRight(line, "\r\n"), err
}

// checkPortSpeed returns an error unless a body is the port speed with this id.
func checkPortSpeed(body []byte, id int64) error {
	var buffer [32]byte
	want := append(strconv.AppendInt(append(buffer[:0], `"id":`...), id, 10), ',')
	if !bytes.Contains(body, want) {
		return fmt.Errorf("got another port speed: %s", bytes.TrimSpace(body))
	}
	return nil
}
