package network

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/pkg/testkit/work"
)

// The cost of a body is linear in its length, or in the number of entities that it creates.
func TestBodiesAreResolvedInLinearTime(t *testing.T) {
	text := func(part string) func(int) *string {
		return func(n int) *string { return new(work.Fill(part, n)) }
	}
	for name, resolve := range map[string]struct {
		text func(int) *string
		do   func(*string)
	}{
		"a host":         {text("a."), func(s *string) { (&forwardGatewayBody{Hostname: *s}).Resolve(&problem.Fields{}) }},
		"a host of dots": {text("a-"), func(s *string) { (&forwardGatewayBody{Hostname: *s + "!"}).Resolve(&problem.Fields{}) }},
		"a port limit":   {text("1"), func(s *string) { (&forwardGatewayBody{PortLimit: *s}).Resolve(&problem.Fields{}) }},
		"an address": {text("1."), func(s *string) {
			entity := ipEntityBody{}
			entity.V4.Address = (*ipText)(s)
			entity.Resolve(&problem.Fields{})
		}},
		"an IPv6 prefix": {text("1:"), func(s *string) {
			entity := ipEntityBody{}
			entity.V6.Address = new(ipText(*s + "/64"))
			entity.Resolve(&problem.Fields{})
		}},
		"a search": {text("ab"), func(s *string) { searchEntities(t.Context(), url.Values{"q": {*s}}) }},
	} {
		t.Run(name, func(t *testing.T) { work.Linear(t, 16<<10, resolve.text, resolve.do) })
	}
	work.Linear(t, 1<<14, func(n int) string { return fmt.Sprintf("10.0.0.0-10.0.%d.255", n/256-1) }, func(ends string) {
		from, to, _ := strings.Cut(ends, "-")
		(&series{span: span{From: &from, To: &to}, VLAN: new(int32(1))}).Resolve(&problem.Fields{})
	})
}
