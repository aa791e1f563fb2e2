package main

import (
	"strings"
	"testing"
)

func TestAnswers(t *testing.T) {
	const right = "HTTP/1.1 200 OK\r\nX-Request-Id: a:b\r\ncontent-length:  20\r\n\r\n{\"id\":7,\"name\":\"a\"}\n"
	answers := newAnswerReader(strings.NewReader(right + right))
	for range 2 {
		body, err := answers.next()
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

func TestAnswersThatAreNone(t *testing.T) {
	for answer, want := range map[string]string{
		"": "read the status: EOF",
		"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}":                         "404 Not Found\": {}",
		"HTTP/1.1 502 Bad Gateway\r\n\r\n":                                              "502 Bad Gateway\": it does not say",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n":     "does not say how long",
		"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{}":                               "read the body: unexpected EOF",
		"HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n" + strings.Repeat(" ", 10000): "10000 bytes",
		"HTTP/1.1 200 OK\r\nContent-Length: two\r\n\r\n{}":                              "invalid syntax",
		"HTTP/1.1 200 OK\r\nContent-Length: 2":                                          "read the headers: EOF",
		"HTTP/1.1 200 OK\r\nContent-Length: -3\r\n\r\n":                                 "does not say how long",
	} {
		if _, err := newAnswerReader(strings.NewReader(answer)).next(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", answer, err, want)
		}
	}
}
