package main

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Files that name all services have for each the same block, line or word in a list. The entry of the service clients, which
// needs nothing particular, is the template for a missing service. In lists its copy comes before the service system, elsewhere
// after it. Lines that only one service needs are written by hand, and stay.
const (
	template = "clients"
	previous = "system"
)

// itemPatterns match the first line of a service's entry, by file. %s is the service's name.
var itemPatterns = map[string]string{
	"docker-compose.yml":                       `^ *(- )?(secrets-)?%s(-migrate)?[:/]`,
	"deploy/chart/values.yaml":                 `^  %s:`,
	"deploy/packages/systemd/ironplane.target": `^Wants=ironplane-service@%s\.service$`,
	"deploy/packages/systemd/sysusers.conf":    `^u ironplane-%s `,
	"deploy/packages/systemd/tmpfiles.conf":    `^d /etc/ironplane/secrets/%s `,
}

// lists are the files with lists of services in one line. A line is a list if it has the names of all of firstServices.
var lists = []string{
	"README.md", "docker-compose.yml", "deploy/packages/etc/ironplane.env", "deploy/packages/removing.sh",
	"deploy/packages/systemd_test.go",
	"docs/operate/backup.md", "docs/operate/compose.md", "docs/operate/install.md", "docs/operate/kubernetes.md",
	"docs/understand/mesh.md",
}

var firstServices = []string{template, "identity", "network", "pxe", previous}

// word returns a pattern that matches a service's name as a whole word.
func word(name string) *regexp.Regexp {
	return regexp.MustCompile(`\b` + regexp.QuoteMeta(name) + `\b`)
}

// addItems adds the missing entries of a service to a file's text.
func addItems(file, text, name string) (string, error) {
	first := regexp.MustCompile(fmt.Sprintf(itemPatterns[file], template))
	for at := 0; ; at++ {
		lines := strings.SplitAfter(text, "\n")
		for at < len(lines) && !first.MatchString(strings.TrimSuffix(lines[at], "\n")) {
			at++
		}
		if at == len(lines) {
			return text, nil
		}
		want := strings.Fields(strings.ReplaceAll(lines[at], template, name))
		if slices.ContainsFunc(lines, func(line string) bool { return slices.Equal(strings.Fields(line), want) }) {
			continue
		}
		last := strings.Fields(strings.ReplaceAll(lines[at], template, previous))
		to := slices.IndexFunc(lines, func(line string) bool { return slices.Equal(strings.Fields(line), last) })
		if to < 0 {
			return "", fmt.Errorf("%s has no entry of the service %s like %q", file, previous, strings.TrimSpace(lines[at]))
		}
		added := strings.ReplaceAll(strings.Join(lines[at:blockEnd(lines, at)], ""), template, name)
		text = strings.Join(slices.Insert(lines, blockEnd(lines, to), added), "")
	}
}

// blockEnd returns the index of the line after a block. A block is a line, the lines below it that are indented further, and
// an empty line.
func blockEnd(lines []string, at int) int {
	indent := func(line string) int { return len(line) - len(strings.TrimLeft(line, " ")) }
	end := at + 1
	for end < len(lines) && strings.TrimSpace(lines[end]) != "" && indent(lines[end]) > indent(lines[at]) {
		end++
	}
	if end > at+1 && end < len(lines) && lines[end] == "\n" {
		end++
	}
	return end
}

const environmentFolder = "deploy/packages/etc/"

var port = regexp.MustCompile(`(?:127\.0\.0\.1|\$HOST):[89]4(\d\d)`)

// addToLists adds a service to the lists of a text that lack it. number is the last two digits of its ports 84xx and 94xx.
func addToLists(text, name string, number int) string {
	lines := strings.SplitAfter(text, "\n")
	for i, line := range lines {
		misses := func(name string) bool { return !word(name).MatchString(line) }
		if !misses(name) || slices.ContainsFunc(firstServices, misses) {
			continue
		}
		fields := strings.Split(line, " ")
		pattern := slices.IndexFunc(fields, word(firstServices[1]).MatchString)
		to := slices.IndexFunc(fields, word(previous).MatchString)
		added := withPorts(strings.ReplaceAll(fields[pattern], firstServices[1], name), number)
		lines[i] = strings.Join(slices.Insert(fields, to, added), " ")
	}
	return strings.Join(lines, "")
}

// withPorts replaces the last two digits of the ports in a text.
func withPorts(text string, number int) string {
	return port.ReplaceAllStringFunc(text, func(address string) string {
		return address[:len(address)-2] + fmt.Sprintf("%02d", number)
	})
}

// environment returns the path of a service's environment file, its text, and the number of its ports. The text is empty if
// the file exists. others are the existing environment files by path.
func environment(name string, others map[string]string) (path, text string, number int) {
	path = environmentFolder + name + ".env"
	maxNumber := 0
	for file, has := range others {
		for _, found := range port.FindAllStringSubmatch(has, -1) {
			n, _ := strconv.Atoi(found[1])
			if file == path {
				return path, "", n
			}
			maxNumber = max(maxNumber, n)
		}
	}
	number = maxNumber + 1
	text = strings.ReplaceAll(others[environmentFolder+template+".env"], template, name)
	return path, withPorts(text, number), number
}

// addTopic adds a row for a topic to the table of docs/do/webhooks.md, before the last row.
func addTopic(text, topic string, needed []string) string {
	if strings.Contains(text, "`"+topic+".*`") {
		return text
	}
	permissions := "none besides"
	if len(needed) > 0 {
		permissions = "`" + strings.Join(needed, "`, `") + "`"
	}
	lines := strings.SplitAfter(text, "\n")
	last := len(lines) - 1
	for last > 0 && !strings.HasPrefix(lines[last], "| `") {
		last--
	}
	return strings.Join(slices.Insert(lines, last, fmt.Sprintf("| `%s.*` | %s |\n", topic, permissions)), "")
}
