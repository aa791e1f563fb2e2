// Package names resolves DNS names within a test's process. Only names that tests have added exist.
package names

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

var (
	known sync.Map // func() netip.Addr, by name
	count atomic.Int64
)

// ReplaceResolver makes Go's resolver use this package. TestMain calls it.
func ReplaceResolver() {
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		local, remote := net.Pipe()
		go serve(remote)
		return local, nil
	}}
}

// Add adds a name. address returns its IPv4 address for each query.
func Add(t testing.TB, address func() netip.Addr) (name string) {
	name = fmt.Sprintf("name-%d.test", count.Add(1))
	known.Store(name, address)
	t.Cleanup(func() { known.Delete(name) })
	return name
}

// serve answers the queries of one connection. A length precedes each message.
func serve(c net.Conn) {
	defer c.Close()
	for {
		var length uint16
		if binary.Read(c, binary.BigEndian, &length) != nil {
			return
		}
		question := make([]byte, length)
		if _, err := io.ReadFull(c, question); err != nil {
			return
		}
		text, err := answer(question)
		if err != nil {
			return
		}
		if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(text))), text...)); err != nil {
			return
		}
	}
}

func answer(question []byte) ([]byte, error) {
	var asked dnsmessage.Message
	if err := asked.Unpack(question); err != nil || len(asked.Questions) != 1 {
		return nil, fmt.Errorf("read a question: %w", err)
	}
	q := asked.Questions[0]
	response := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: asked.ID, Response: true, RecursionAvailable: true},
		Questions: asked.Questions,
	}
	address, exists := known.Load(strings.ToLower(strings.TrimSuffix(q.Name.String(), ".")))
	if !exists {
		response.RCode = dnsmessage.RCodeNameError
	} else if q.Type == dnsmessage.TypeA {
		response.Answers = []dnsmessage.Resource{
			{
				Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class},
				Body:   &dnsmessage.AResource{A: address.(func() netip.Addr)().As4()},
			},
		}
	}
	return response.Pack()
}
