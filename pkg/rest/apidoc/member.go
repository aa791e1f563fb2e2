package apidoc

import (
	"reflect"

	"github.com/ironplane/ironplane/pkg/schema"
)

// memberKey names a member that means the same in every resource. The kind tells a text from an object of the same name.
type memberKey struct {
	name string
	kind reflect.Kind
}

// commonMembers describes members that many resources share. A member's own doc tag takes precedence: use it where a
// member means something more particular.
var commonMembers = map[memberKey]string{
	{"attempts", reflect.Int64}:     "The number of attempts so far.",
	{"billing_id", reflect.String}:  "The item's id in the billing system.",
	{"count", reflect.Int64}:        "The number of items.",
	{"created_at", reflect.Struct}:  "When the item was created.",
	{"description", reflect.String}: "A description for people.",
	{"email", reflect.String}:       "The email address.",
	{"expires_at", reflect.Struct}:  "When the item expires. Left out if it never does.",
	{"finished_at", reflect.Struct}: "When the work finished. Left out until then.",
	{"first", reflect.String}:       "The first name.",
	{"gateway", reflect.String}:     "The address of the default gateway.",
	{"hostname", reflect.String}:    "The host name.",
	{"id", reflect.Int64}:           "The item's id.",
	{"last", reflect.String}:        "The last name.",
	{"name", reflect.String}:        "The item's name.",
	{"owner", reflect.Struct}:       "The item's owner.",
	{"slug", reflect.String}:        "The item's name for programs.",
	{"subject", reflect.String}:     "The subject of the mail.",
	{"url", reflect.String}:         "The item's path in the API.",
	{"vlan", reflect.Int32}:         "The number of the VLAN.",
}

// describe returns the sentence that the document has for a member: its own, or the common one; empty if it has neither.
func describe(m *schema.Member) string {
	if m.Doc != "" {
		return m.Doc
	}
	return commonMembers[memberKey{m.JSON, m.Type.Kind()}]
}
