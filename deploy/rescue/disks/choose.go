package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// disk is a disk of the machine, as lsblk describes it.
type disk struct {
	Path     string  `json:"path"`
	Size     int64   `json:"size"`
	Serial   *string `json:"serial"`
	WWN      *string `json:"wwn"`
	Model    *string `json:"model"`
	Type     string  `json:"type"`
	IsHDD    bool    `json:"rota"`
	ReadOnly bool    `json:"ro"`
	IsUSB    bool    `json:"rm"` // removable
}

// lsblkColumns are the columns that disk has.
const lsblkColumns = "PATH,SIZE,SERIAL,WWN,MODEL,TYPE,ROTA,RO,RM"

// parseDisks returns the disks in the output of lsblk --json --bytes, sorted by path. It leaves out what is not a disk of the machine:
// loop devices, disks in memory, CDs, removable disks, and empty drives.
func parseDisks(output []byte) ([]disk, error) {
	var parsed struct {
		Devices []disk `json:"blockdevices"`
	}
	if err := json.Unmarshal(output, &parsed); err != nil {
		return nil, fmt.Errorf("read the output of lsblk: %w", err)
	}
	disks := slices.DeleteFunc(parsed.Devices, func(d disk) bool {
		return d.Type != "disk" || d.IsUSB || d.Size == 0 || strings.HasPrefix(d.Path, "/dev/ram") || strings.HasPrefix(d.Path, "/dev/zram")
	})
	slices.SortFunc(disks, func(a, b disk) int { return strings.Compare(a.Path, b.Path) })
	return disks, nil
}

// String describes a disk for people.
func (d disk) String() string {
	text := fmt.Sprintf("%s (%s", d.Path, formatSize(d.Size))
	for _, part := range []struct {
		name  string
		value *string
	}{{"serial", d.Serial}, {"wwn", d.WWN}} {
		if part.value != nil && *part.value != "" {
			text += ", " + part.name + "=" + *part.value
		}
	}
	return text + ")"
}

// formatSize returns a size as manufacturers give it.
func formatSize(size int64) string {
	if size >= 1e12 {
		return strconv.FormatFloat(math.Round(float64(size)/1e11)/10, 'f', -1, 64) + "T"
	}
	return strconv.FormatFloat(math.Round(float64(size)/1e8)/10, 'f', -1, 64) + "G"
}

// sizeTolerance is how far a disk's size may be from the size in a selector. Manufacturers round.
const sizeTolerance = 0.05

// selectorHelp lists the selectors.
const selectorHelp = "a path such as /dev/sda, serial=…, wwn=…, size=480G, smallest, largest, smallest-ssd, largest-ssd, " +
	"smallest-hdd or largest-hdd"

// find returns the disks that a selector names, the preferred one first.
func find(disks []disk, selector string) ([]disk, error) {
	name, value, hasValue := strings.Cut(selector, "=")
	by := func(is func(disk) bool) []disk {
		return slices.DeleteFunc(slices.Clone(disks), func(d disk) bool { return !is(d) })
	}
	equals := func(field *string) bool { return field != nil && strings.EqualFold(strings.TrimSpace(*field), value) }
	switch order, kind, _ := strings.Cut(name, "-"); {
	case strings.HasPrefix(selector, "/dev/"):
		return by(func(d disk) bool { return d.Path == selector }), nil
	case name == "serial" && value != "":
		return by(func(d disk) bool { return equals(d.Serial) }), nil
	case name == "wwn" && value != "":
		return by(func(d disk) bool { return equals(d.WWN) }), nil
	case name == "size":
		size, err := parseSize(value)
		if err != nil {
			return nil, err
		}
		return by(func(d disk) bool { return math.Abs(float64(d.Size)-size) <= size*sizeTolerance }), nil
	case !hasValue && (order == "smallest" || order == "largest") && slices.Contains([]string{order, order + "-ssd", order + "-hdd"}, name):
		found := by(func(d disk) bool { return kind == "" || d.IsHDD == (kind == "hdd") })
		slices.SortStableFunc(found, func(a, b disk) int {
			if order == "largest" {
				a, b = b, a
			}
			return cmp.Compare(a.Size, b.Size)
		})
		return found, nil
	}
	return nil, fmt.Errorf("%q does not select a disk: it must be %s", selector, selectorHelp)
}

// parseSize parses a size such as 480G or 1.92T, in decimal units as manufacturers use.
func parseSize(text string) (float64, error) {
	unit := map[byte]float64{'M': 1e6, 'G': 1e9, 'T': 1e12}
	digits := strings.TrimRight(strings.TrimSuffix(strings.ToUpper(text), "B"), "MGT")
	rest := strings.ToUpper(text)[len(digits):]
	value, err := strconv.ParseFloat(digits, 64)
	if err != nil || value <= 0 || rest == "" || unit[rest[0]] == 0 {
		return 0, fmt.Errorf("%q is no size: it must be a number with a unit, such as 480G or 1.92T", text)
	}
	return value * unit[rest[0]], nil
}

// choose returns a disk for each selector. No disk is chosen twice, and none that a selector in keep names: such a disk stays untouched.
// A selector in keep that names no disk is an error, because a spelling mistake must not cost data.
func choose(disks []disk, selectors, keep []string) (chosen, kept []disk, err error) {
	for _, selector := range keep {
		found, err := find(disks, selector)
		if err != nil {
			return nil, nil, err
		}
		if strings.HasPrefix(selector, "smallest") || strings.HasPrefix(selector, "largest") {
			found = found[:min(len(found), 1)]
		}
		if len(found) == 0 {
			return nil, nil, fmt.Errorf("there is no disk %s to keep: the machine has %s", selector, list(disks))
		}
		for _, d := range found {
			if !slices.ContainsFunc(kept, func(k disk) bool { return k.Path == d.Path }) {
				kept = append(kept, d)
			}
		}
	}
	for _, selector := range selectors {
		found, err := find(disks, selector)
		if err != nil {
			return nil, nil, err
		}
		usable := slices.DeleteFunc(found, func(d disk) bool {
			return d.ReadOnly || slices.ContainsFunc(slices.Concat(kept, chosen), func(used disk) bool { return used.Path == d.Path })
		})
		if len(usable) == 0 {
			return nil, nil, fmt.Errorf("there is no disk %s that is neither kept, read-only nor chosen already: the machine has %s",
				selector, list(disks))
		}
		chosen = append(chosen, usable[0])
	}
	return chosen, kept, nil
}

// list describes disks for people.
func list(disks []disk) string {
	if len(disks) == 0 {
		return "no disk"
	}
	texts := make([]string, len(disks))
	for i, d := range disks {
		texts[i] = d.String()
	}
	return strings.Join(texts, ", ")
}

// contains reports whether a disk is one of several.
func contains(disks []disk, d disk) bool {
	return slices.ContainsFunc(disks, func(other disk) bool { return other.Path == d.Path })
}
