// Package storagetest gives tests a real door of S3.
package storagetest

import (
	"net/http/httptest"
	"os"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
)

// Credentials are as anybody's S3 client finds them. TestMain calls it.
func Credentials() {
	for name, value := range map[string]string{"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_EC2_METADATA_DISABLED": "true"} {
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}
}

// S3 is a bucket: where a store finds it, and the names of what is in it.
func S3(t testing.TB) (url string, blobs func() []string) {
	t.Helper()
	backend := s3mem.New()
	if err := backend.CreateBucket("files"); err != nil {
		t.Fatal(err)
	}
	door := httptest.NewServer(gofakes3.New(backend).Server())
	t.Cleanup(door.Close)
	return "s3://files?region=eu&use_path_style=true&endpoint=" + door.URL, func() (names []string) {
		all, err := backend.ListBucket("files", nil, gofakes3.ListBucketPage{})
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range all.Contents {
			names = append(names, o.Key)
		}
		return names
	}
}
