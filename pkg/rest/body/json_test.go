package body

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/ironplane/ironplane/pkg/problem"
)

// FuzzParseObject compares parseObject with encoding/json. Both parse a body to the same values. parseObject also refuses some
// bodies that encoding/json accepts: see mayRefuse.
func FuzzParseObject(f *testing.F) {
	for _, text := range []string{`{}`, `{"a":1}`, `{"a":{"b":[1,"x",null,true,{}]}}`, `{"a":1,"a":2}`, `[]`, `null`, `{"a":1}x`, `{"a":`, "\xff", `{"a":"\ud800"}`, `{"a":1e400}`, `{"":{"/~":0}}`, ` {"a" : 1 } `, strings.Repeat(`{"a":`, 40) + "1" + strings.Repeat("}", 40)} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := parseObject(text)
		if err != nil && !problem.Is(err, problem.BadRequest) {
			t.Fatalf("got %v, want a %v", err, problem.BadRequest)
		}
		var want map[string]any
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		wantErr := d.Decode(&want)
		if len(got) == 0 && string(bytes.TrimSpace(text)) != "{}" {
			var items []any
			if err == nil && (json.Unmarshal(text, &items) != nil || len(items) > 0) {
				t.Fatalf("got %s parsed as {}, want an empty list or a refusal", text)
			}
			return
		}
		if !json.Valid(text) { // the decoder would stop after the first value
			wantErr = errors.New("not JSON")
		}
		if err == nil {
			if wantErr != nil || !reflect.DeepEqual(plain(got), any(want)) {
				t.Fatalf("got %v, want %v, %v", plain(got), want, wantErr)
			}
			return
		}
		if wantErr == nil && want != nil && !mayRefuse(err) {
			t.Fatalf("got %v, want %v", err, want)
		}
	})
}

// A lone surrogate is refused, because it is no character and would be replaced.
func TestLoneSurrogates(t *testing.T) {
	t.Parallel()
	for text, at := range map[string]int{
		`{}`: -1, `{"a": "\ud83d\ude00"}`: -1, `{"a": "\\ud800"}`: -1, `{"a": "\u00e4\n"}`: -1, `{"a": "\uD83D\uDE00\uD83D\uDE00"}`: -1,
		`{"a": "\ud800"}`: 7, `{"a": "\ude00"}`: 7, `{"\ud83d": 1}`: 2, `{"a": "\ude00\ud83d"}`: 7, `{"a": "\ud83d\ud83d\ude00"}`: 7, `{"a": "\ud83dx"}`: 7, `{"a": "\\\udfff"}`: 9, `{"a": "\ud83d\n"}`: 7,
	} {
		if got := loneSurrogate([]byte(text)); got != at {
			t.Errorf("%s: got %d, want %d", text, got, at)
		}
		if _, err := parseObject([]byte(text)); (err != nil) != (at >= 0) {
			t.Errorf("%s: got %v, want an error: %t", text, err, at >= 0)
		}
	}
}

// The memory for a body is proportional to its length, also with long names of members.
func TestParseObjectAllocates(t *testing.T) { // not parallel, because allocations of other tests would count
	body := `{"` + strings.Repeat("n", 100_000) + `":[` + strings.Repeat("1,", 100_000) + `1]}`
	allocated := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := parseObject([]byte(body)); err != nil {
				b.Fatal(err)
			}
		}
	}).AllocedBytesPerOp()
	if limit := int64(200 * len(body)); allocated > limit {
		t.Errorf("got %d bytes allocated for a body of %d, want at most %d", allocated, len(body), limit)
	}
}

// mayRefuse reports whether an error is one that encoding/json does not have.
func mayRefuse(err error) bool {
	for _, reason := range []string{"twice", "nests deeper", "UTF-8", "has text after", "surrogate"} {
		if strings.Contains(err.Error(), reason) {
			return true
		}
	}
	return false
}

// plain converts a parsed value to the types of encoding/json.
func plain(v any) any {
	switch v := v.(type) {
	case object:
		m := map[string]any{}
		for _, member := range v {
			m[member.name] = plain(member.value)
		}
		return m
	case array:
		s := make([]any, len(v))
		for i := range v {
			s[i] = plain(v[i])
		}
		return s
	default:
		return v
	}
}
