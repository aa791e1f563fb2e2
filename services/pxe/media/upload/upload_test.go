package upload_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"io"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/ironplane/ironplane/pkg/problem"
	"github.com/ironplane/ironplane/services/pxe/media/upload"
)

// file keeps the written bytes, and returns their number.
func file(content *bytes.Buffer) upload.Form {
	return upload.Form{Member: "driver", Put: func(from io.Reader) (string, error) {
		n, err := io.Copy(content, from)
		if err != nil || n == 0 {
			return "", err
		}
		return "put", nil
	}}
}

func TestRead(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("all of it, ", 100_000)
	inBase64 := base64.StdEncoding.EncodeToString([]byte(long))
	const form = "multipart/form-data; boundary=x"
	part := func(head, content string) string {
		return "--x\r\nContent-Disposition: form-data; " + head + "\r\n\r\n" + content + "\r\n"
	}
	for name, c := range map[string]struct {
		media, body string
		want, put   string
		kind        problem.Kind
	}{
		"JSON":                   {"application/json", `{"name": "a", "driver": "` + inBase64 + `"}`, `{"name": "a", "driver": "put"}`, long, 0},
		"before the name":        {"", ` {"driver" : "` + inBase64 + `" , "name": "a\"b"}`, ` {"driver" : "put" , "name": "a\"b"}`, long, 0},
		"as PHP writes it":       {"application/json; charset=utf-8", `{"driver":"\/\/8=\n"}`, `{"driver":"put"}`, "\xff\xff", 0},
		"by other escapes":       {"", `{"driv\u0065r":"\u0061Xk="}`, `{"driv\u0065r":"put"}`, "iy", 0},
		"with blanks":            {"", `{"driver":" aX k=\t "}`, `{"driver":"put"}`, "iy", 0},
		"empty":                  {"", `{"driver":""}`, `{"driver":""}`, "", 0},
		"another value":          {"", `{"driver":{"driver":"aXk="},"x":["driver","aXk="],"name":null}`, `{"driver":{"driver":"aXk="},"x":["driver","aXk="],"name":null}`, "", 0},
		"no JSON":                {"", `{"driver"`, `{"driver"`, "", 0},
		"cut off":                {"", `{"driver": "aXl5eXl5`, "", "iyyyyy", problem.BadRequest},
		"cut off in a text":      {"", `{"name": "a`, `{"name": "a`, "", 0},
		"no base64":              {"", `{"driver": "!"}`, "", "", problem.Invalid},
		"base64 without its end": {"", `{"driver": "aXl5eXk"}`, "", "iyy", problem.Invalid},
		"behind its end":         {"", `{"driver": "aXk=aXk="}`, "", "iy", problem.Invalid},
		"long without it":        {"", `{"name": "` + long + `"}`, "", "", problem.TooLarge},
		"multipart": {form, part(`name="name"`, "a \"b\"") + part(`name="driver"; filename="x.bin"`, long) + "--x--\r\n",
			`{"name":"a \"b\"","driver":"put"}`, long, 0},
		"no parts":          {form, "--x--\r\n", `{}`, "", 0},
		"parts cut off":     {form, part(`name="name"`, "a") + "--x\r\nContent-Disposition: form-data; name=\"driver\"\r\n\r\nall", "", "all", problem.BadRequest},
		"a long part":       {form, part(`name="name"`, long) + "--x--\r\n", "", "", problem.TooLarge},
		"many parts":        {form, strings.Repeat(part(`name="x"`, ""), 101) + "--x--\r\n", "", "", problem.TooLarge},
		"no UTF-8":          {form, part(`name="name"`, "\xff") + "--x--\r\n", "", "", problem.BadRequest},
		"no boundary":       {"multipart/form-data", "", "", "", problem.UnsupportedMedia},
		"another type":      {"application/x-www-form-urlencoded", "a=b", "", "", problem.UnsupportedMedia},
		"no type":           {"a/", "a=b", "", "", problem.UnsupportedMedia},
		"nothing":           {"", "", "", "", 0},
		"an array of texts": {"", `["driver", "aXk="]`, `["driver", "aXk="]`, "", 0},
	} {
		for how, reader := range map[string]io.Reader{
			"at once": strings.NewReader(c.body), "bytewise": iotest.OneByteReader(strings.NewReader(c.body)),
		} {
			var put bytes.Buffer
			r := httptest.NewRequest("POST", "/", reader)
			r.Header.Del("Content-Type")
			if c.media != "" {
				r.Header.Set("Content-Type", c.media)
			}
			got, err := file(&put).Read(r)
			if c.kind != 0 && !problem.Is(err, c.kind) || c.kind == 0 && err != nil {
				t.Errorf("%s, %s: got the error %v, want the kind %d (0 is none)", name, how, err, c.kind)
			}
			if string(got) != c.want || put.String() != c.put {
				t.Errorf("%s, %s: got %.100q and the file %.100q, want %.100q and %.100q", name, how, got, put.String(), c.want, c.put)
			}
		}
	}
}

// An error of the store is returned as it is, not as an error of the caller.
func TestStoreFails(t *testing.T) {
	t.Parallel()
	broken := problem.New(problem.Unavailable, "It is full.")
	form := upload.Form{Member: "driver", Put: func(io.Reader) (string, error) { return "", broken }}
	for media, body := range map[string]string{"application/json": `{"driver":"aXk="}`, "multipart/form-data; boundary=x": "--x\r\nContent-Disposition: form-data; name=driver\r\n\r\nx\r\n--x--\r\n"} {
		r := httptest.NewRequest("POST", "/", strings.NewReader(body))
		r.Header.Set("Content-Type", media)
		if _, err := form.Read(r); !errors.Is(err, broken) {
			t.Errorf("%s: got %v, want %v", media, err, broken)
		}
	}
}
