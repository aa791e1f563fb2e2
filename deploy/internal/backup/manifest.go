// Package backup writes everything that an installation keeps into one archive, and restores it: the database, the master key, the
// store and the settings. The archive is a tar file. Its last entry is the manifest, which has the checksum of each other entry.
package backup

import (
	"time"

	"github.com/ironplane/ironplane/pkg/secret"
)

// Config are the variables of the commands backup and restore.
type Config struct {
	WithStore bool   `env:"IRONPLANE_BACKUP_STORE" default:"true" doc:"for backup: whether the archive gets the files of the store, if that is a folder"`
	Settings  string `env:"IRONPLANE_BACKUP_SETTINGS" doc:"for backup: a folder whose *.env files, the settings, the archive gets; for restore: the folder with the present ones"`
	Replace   bool   `env:"IRONPLANE_RESTORE_REPLACE" default:"false" doc:"for restore: whether a database that has data may be replaced"`
}

// Installation is what a backup reads, and a restore writes.
type Installation struct {
	Config
	Admin secret.String // the database's URL, as its administrator
	// MasterKey is the key of a backup. For a restore it is zero, unless a variable sets the key.
	MasterKey secret.String
	// KeyIsSet says that a variable sets the master key. The archive does not have the key then.
	KeyIsSet bool
	Store    string // a folder, or the URL of a bucket; empty: unknown
}

// The names of entries in an archive.
const (
	manifestName   = "manifest.json"
	masterKeyName  = "master-key"
	databaseFolder = "database/"
	storeFolder    = "store/"
	settingsFolder = "settings/"
)

// dumpName returns the name of the entry with a service's schema.
func dumpName(service string) string { return databaseFolder + service + ".dump" }

// format is the version of the archive's layout.
const format = 1

// Manifest describes an archive.
type Manifest struct {
	Format    int              `json:"format"`
	Created   time.Time        `json:"created"`
	Version   string           `json:"version"`   // of the program that wrote the archive
	Schemas   map[string]int64 `json:"schemas"`   // the number of the newest migration, by service
	Elsewhere []string         `json:"elsewhere"` // what the installation keeps and the archive does not have
	Parts     []Part           `json:"parts"`
}

// Part is an entry of an archive.
type Part struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"` // in hexadecimal
}
