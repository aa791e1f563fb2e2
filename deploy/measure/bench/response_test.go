package main

import (
	"strings"
	"testing"
)

func TestResponses(t *testing.T) {
	const check = "HTTP/1.1 200 OK\r\nX-Request-Id: a:b\r\ncontent-length:  20\r\n\r\n{\"id\":7,\"name\":\"a\"}\n"
	responses := newResponseReader(strings.NewReader(check + check))
	for range 2 {
		body, err := responses.next()
		if err != nil {
			t.Fatal(err)
		}
		if err := checkPortSpeed(body, 7); err != nil {
			t.Error(err)
		}
		for _, other := range []int64{1, 77, 0} {
			if checkPortSpeed(body, other) == nil {
				t.Errorf("got port speed 7 accepted as %d, want an error", other)
			}
		}
	}
}

func TestInvalidResponses(t *testing.T) {
	for response, want := range map[string]string{
		"": "read the status: EOF",
		"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}":                         "404 Not Found\": {}",
		"HTTP/1.1 502 Bad Gateway\r\n\r\n":                                              "502 Bad Gateway\": it has no Content-Length",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n":     "has no Content-Length",
		"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{}":                               "read the body: unexpected EOF",
		"HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n" + strings.Repeat(" ", 10000): "10000 bytes",
		"HTTP/1.1 200 OK\r\nContent-Length: two\r\n\r\n{}":                              "invalid syntax",
		"HTTP/1.1 200 OK\r\nContent-Length: 2":                                          "read the headers: EOF",
		"HTTP/1.1 200 OK\r\nContent-Length: -3\r\n\r\n":                                 "has no Content-Length",
	} {
		if _, err := newResponseReader(strings.NewReader(response)).next(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", response, err, want)
		}
	}
}
