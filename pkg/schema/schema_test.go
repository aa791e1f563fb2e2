package schema_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/pkg/schema"
)

// An invalid tag fails at start-up. Otherwise it would be a rule that nothing checks.
func TestTags(t *testing.T) {
	t.Parallel()
	for tag, want := range map[string]string{
		`json:"name" db:"name" max:"9"`: "<nil>",
		`json:"name" requird:"create"`:  "Name has the unknown tag requird; known tags are alias, db, ",
		`json:"name" max:255`:           `Name has a tag that is not of the form key:"value": max:255`,
		`json:"name", max:"9"`:          "Name has the unknown tag , max; ",
		`json:"name" max:"many"`:        `Name has the tag max:"many", which must be a whole number`,
		`json:"name" pattern:"["`:       `Name has the tag pattern:"[", which must be a regular expression`,
		`json:"name" enum:"a,,b"`:       `Name has the tag enum:"a,,b", which must be values with commas between`,
		`json:"name" ext:"yes"`:         `Name has the tag ext:"yes", which must be "true"`,
		`json:"name" trim:"true"`:       `Name has the tag trim:"true", which must be "false"`,
		`json:"name" required:"creat"`:  `Name has the tag required:"creat", which must be create, edit or both`,
	} {
		of := reflect.StructOf([]reflect.StructField{{Name: "Name", Type: reflect.TypeFor[string](), Tag: reflect.StructTag(tag)}})
		func() {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.Contains(got, want) {
					t.Errorf("%s: got %s, want %s", tag, got, want)
				}
			}()
			schema.Describe(of)
		}()
	}
}
